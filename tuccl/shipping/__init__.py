"""The directory for a job: table, libraries, and the file that the job sources."""
