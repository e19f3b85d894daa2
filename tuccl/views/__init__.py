"""What people see: the terminal, pictures of topologies, and the report page."""
