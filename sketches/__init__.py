"""Sketches: the edges of a machine that the synthesizer may use, and the reasons for the rest."""
