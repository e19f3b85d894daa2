"""Tasks, the configurations to try on them, and the protocol of whoever times one."""
