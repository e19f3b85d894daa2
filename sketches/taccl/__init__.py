"""TACCL's own topology and sketch files, read so that they can be used as they are."""
