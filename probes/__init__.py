"""What the machine is: devices, links, and where each figure came from.

The package on the left of the import order: it imports nothing of the project.
"""
