"""Views of a topology: a picture (`tuccl.probes.drawing.svg.draw_svg`), or a tree of text."""
