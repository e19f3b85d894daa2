"""The machine as a graph of devices and links: its form, rules, identity, routes and figures."""
