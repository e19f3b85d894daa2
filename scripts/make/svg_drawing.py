"""Boxes, arrows, text and curves as an SVG picture, for documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

INK, QUIET, LINE = "#1e293b", "#64748b", "#94a3b8"
TEAL, AMBER, VIOLET, RED = "#0d9488", "#d97706", "#7c3aed", "#dc2626"
PALE = {INK: "#f1f5f9", TEAL: "#ccfbf1", AMBER: "#fef3c7", VIOLET: "#ede9fe", RED: "#fee2e2"}
_STYLE = (
    "text{font-family:Inter,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;font-size:13px;"
    f"fill:{INK}}}.quiet{{fill:{QUIET};font-size:12px}}.strong{{font-weight:600}}"
)


@dataclass(slots=True)
class Drawing:
    """A picture that grows from the back to the front."""

    width: int
    height: int
    title: str
    """Description for readers who cannot see it."""
    _parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "", at: str = "middle") -> None:
        """Write a line with its base at y."""
        self._parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{at}">{escape(words)}</text>'
        )

    def box(
        self, x: float, y: float, size: tuple[float, float], lines: Sequence[str], colour: str = INK
    ) -> None:
        """Draw a box with lines in its middle, the first one strong."""
        width, height = size
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" '
            f'fill="{PALE[colour]}" stroke="{colour}" stroke-width="1.3"/>'
        )
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 4.5
        for number, words in enumerate(lines):
            kind = "quiet" if number else "strong"
            self.text(x + width / 2, top + 17 * number, words, kind)

    def line(
        self, points: Iterable[tuple[float, float]], colour: str = LINE, *, arrow: bool = False,
        dashes: str = "", width: float = 1.6,
    ) -> None:  # fmt: skip
        """Draw a line through points, with an arrow at its end if asked for."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        end = f' marker-end="url(#to-{colour[1:]})"' if arrow else ""
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{width:g}"{dashed}{end}/>'
        )

    def bar(self, x: float, y: float, size: tuple[float, float], colour: str = TEAL) -> None:
        """Draw a filled bar."""
        width, height = size
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}"/>'
        )

    def dot(self, x: float, y: float, colour: str = TEAL, radius: float = 4) -> None:
        """Draw a dot."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{colour}"/>')

    def svg(self) -> str:
        """The picture as a file's text."""
        markers = "".join(
            f'<marker id="to-{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
            for colour in (LINE, INK, QUIET, TEAL, AMBER, VIOLET, RED)
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img"><title>{escape(self.title)}</title><style>{_STYLE}</style>'
            f"<defs>{markers}</defs>"
            f'<rect width="{self.width}" height="{self.height}" rx="10" fill="#ffffff"/>'
        )
        return "\n".join([head, *self._parts, "</svg>"]) + "\n"
