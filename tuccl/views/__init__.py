"""What people see: the terminal and the report page."""
