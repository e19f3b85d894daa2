"""Views of a topology: a picture (`probes.drawing.svg.draw_svg`), or a tree of text."""
