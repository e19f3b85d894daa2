"""Racks and leaf switches of hosts, from files and tools of the site."""
