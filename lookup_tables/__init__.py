"""The result: keys, entries, the Parquet record for people and the bundle for the plugin.

Imports nothing of the project, so that any tool can read a table.
"""
