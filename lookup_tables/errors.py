"""Errors of `lookup_tables`: one type per cause, each message says what, where and what to do.

TableError
├── InvalidTableError   entries contradict each other or lie outside their range
├── TableFileError      a table or bundle file is damaged, or of an unknown version
└── PyarrowError        the installed pyarrow cannot write and read Parquet
"""


class TableError(Exception):
    """Root of the errors that `lookup_tables` raises."""


class InvalidTableError(TableError):
    """Entries contradict each other or lie outside what the format can hold."""


class TableFileError(TableError):
    """A table or bundle file is damaged, truncated or of an unknown version."""


class PyarrowError(TableError):
    """The installed pyarrow cannot be imported, or cannot write and read Parquet."""
