"""Errors of `sketches`."""


class SketchError(Exception):
    """A sketch cannot be made from this topology, or breaks a rule."""
