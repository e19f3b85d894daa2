"""Contents of a picture before it is written: boxes, wires and texts with their coordinates.

Lengths are pixels of the picture, x to the right, y down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from probes.topology.figure_text import link_text, speed
from probes.topology.graph import Link, Provenance

LEAF_WIDTH = 88.0
LEAF_HEIGHT = 50.0
BAR_HEIGHT = 26.0
GAP = 12.0
"""Distance between neighbouring boxes."""
COLUMN = LEAF_WIDTH + GAP

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with lines of text: one above the other, or side by side in a bar."""

    x: float
    y: float
    width: float
    height: float
    style: str
    lines: tuple[str, ...] = ()
    tip: str = ""
    bar: bool = False

    @property
    def middle(self) -> float:
        """The x of its centre."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The y of its lower edge."""
        return self.y + self.height


@dataclass(frozen=True, slots=True)
class Wire:
    """A link, straight or as an arc that leaves both ends vertically."""

    start: Point
    end: Point
    link: Link
    label_at: Point
    label: str = ""
    anchor: str = "start"
    tip: str = ""
    arc: float = 0.0
    """Height of the arc at its middle, downwards if positive; 0 for a straight line."""
    over: bool = False
    """Whether it is drawn over bars that it does not connect to."""
    plugged_above: bool = False
    """Whether a wire drawn over bars starts in a bar."""

    @property
    def width(self) -> float:
        """Line width by octaves of bandwidth, so that noise does not change the picture."""
        octave = math.floor(math.log2(self.link.bandwidth_gb_per_s / 1.3))
        return min(max(1.0 + 0.7 * octave, 1.0), 8.0)

    @property
    def dashed(self) -> bool:
        """Whether its bandwidth is assumed."""
        return self.link.provenance is Provenance.ASSUMED


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text outside the boxes."""

    x: float
    y: float
    text: str
    style: str


@dataclass(slots=True)
class Scene:
    """All elements of the picture, each list from back to front."""

    panels: list[Box] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)


def straight(start: Point, end: Point, link: Link, *, over: bool = False) -> Wire:
    """Return a straight wire with its speed as the label, beside its middle."""
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    vertical = start[0] == end[0]
    return Wire(
        start=start,
        end=end,
        link=link,
        label_at=(middle[0] + 6, middle[1] + 3.5) if vertical else (middle[0], middle[1] - 7),
        label=speed(link.bandwidth_gb_per_s),
        anchor="start" if vertical else "middle",
        tip=f"{link.src} - {link.dst}: {link_text(link)}",
        over=over,
    )
