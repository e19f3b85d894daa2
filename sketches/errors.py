"""Errors of `sketches`.

SketchError
└── TacclFileError  a TACCL file is malformed, or its rules cannot be satisfied
"""


class SketchError(Exception):
    """A topology allows no sketch, or a sketch is invalid."""


class TacclFileError(SketchError):
    """A TACCL topology or sketch file is malformed, or leaves GPUs unconnected."""
