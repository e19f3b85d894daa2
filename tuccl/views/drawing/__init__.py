"""Views of a topology: a picture (`tuccl.views.drawing.svg.draw_svg`), or a tree of text."""
