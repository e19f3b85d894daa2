"""The directory that a job is given: table, libraries, and the file that the job sources."""
