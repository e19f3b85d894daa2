"""Racks and leaf switches of hosts, as files and tools of the site name them."""
