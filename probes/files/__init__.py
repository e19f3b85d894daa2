"""Machines saved in files: every form, recognized by its content, and the shipped machines."""
