"""Errors of `sketches`.

SketchError
└── TacclFileError  a file in TACCL's form is malformed, or its rules cannot be kept
"""


class SketchError(Exception):
    """A sketch cannot be made from this topology, or breaks a rule."""


class TacclFileError(SketchError):
    """A topology or sketch file in TACCL's form is malformed, or leaves GPUs without a way."""
