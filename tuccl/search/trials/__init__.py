"""Tasks, the configurations to try on them, and the protocol that times one."""
