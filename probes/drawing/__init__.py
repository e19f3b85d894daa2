"""A topology as a picture: `probes.drawing.svg.draw_svg`."""
