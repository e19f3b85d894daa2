"""Errors of `lookup_tables`: one type per cause, each message says what, where and what to do.

TableError
├── InvalidTableError   entries contradict each other or lie outside their range
├── TableFileError      a table or bundle file is damaged, or of an unknown version
└── PyarrowError        the installed pyarrow cannot write and read Parquet
"""


class TableError(Exception):
    """Base class of the errors that `lookup_tables` raises."""


class InvalidTableError(TableError):
    """Raised when entries contradict each other or exceed the format's limits."""


class TableFileError(TableError):
    """Raised when a table or bundle file is damaged, truncated or of an unknown version."""


class PyarrowError(TableError):
    """Raised when the installed pyarrow cannot be imported, or cannot write and read Parquet."""
