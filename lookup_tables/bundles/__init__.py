"""The bundle that the plugin maps: written from a table, and read back."""
