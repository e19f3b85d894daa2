"""Writer and reader of the bundle that the plugin maps."""
