"""The machine: devices, links, and the provenance of each figure.

The first package in the import order: it imports no other package of the project.
"""
