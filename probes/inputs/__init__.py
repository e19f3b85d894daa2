"""Files and texts from outside: read within limits, and what is wrong with them in one line."""
