"""The directory of a command's runs: files that are whole or absent, and the measurement log."""
