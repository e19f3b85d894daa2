"""A topology for the eye: a picture (`probes.drawing.svg.draw_svg`), or a tree of text."""
