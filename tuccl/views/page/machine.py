"""The machine as `tuccl topology draw` draws it, in a shadow tree with styles of its own."""

from __future__ import annotations

from probes.drawing.svg import draw_svg
from probes.errors import TopologyExportError
from probes.topology.graph import Topology
from tuccl.views.page.elements import Markup, element, trusted

_DARK = """svg{max-width:100%;height:auto}
@media print{svg{max-width:100%;height:auto}}
@media screen and (prefers-color-scheme:dark){
text{fill:#e8edf3}.sub,.fact,.speed,.assumed{fill:#b0bcc9}.title{fill:#e8edf3}
.panel{fill:#1b2530;stroke:#45556a}.ground{fill:#161e27}
rect[fill="#f8fafc"]{fill:#161e27}
rect[fill="#e7f5d3"]{fill:#22350f}rect[fill="#dbeefb"]{fill:#0f2f47}
rect[fill="#ede9fe"]{fill:#2c2350}rect[fill="#e8edf3"]{fill:#2a3644}
rect[fill="#cdeaa6"]{fill:#2c4613}rect[fill="#c7e4f7"]{fill:#123a56}
path[stroke="#ffffff"],circle[stroke="#ffffff"]{stroke:#1b2530}
path[stroke="#4d8f0c"]{stroke:#8fce4f}path[stroke="#0369a1"]{stroke:#6cb4ff}
path[stroke="#7c3aed"]{stroke:#b79cff}path[stroke="#64748b"]{stroke:#a7b3c1}}
"""


def machine_picture(machine: Topology) -> Markup:
    """Return the picture of a machine; a sentence where it is too large for one."""
    try:
        drawing = draw_svg(machine)
    except TopologyExportError as error:
        return element("p", str(error))
    shadow = element(
        "template", trusted(drawing), element("style", trusted(_DARK)), shadowrootmode="open"
    )
    kinds = (
        f"{len(machine.gpus)} GPUs, {len(machine.nics)} NICs on {machine.node_count} node(s), "
        f"{len(machine.links)} links"
    )
    return element(
        "figure",
        element("figcaption", element("h3", "Devices and links")),
        element(
            "div",
            element("div", shadow, role="img", aria_label=f"Picture of {machine.name}: {kinds}."),
            class_="picture",
            tabindex=0,
            role="group",
            aria_label="Picture of the machine",
        ),
        element(
            "p",
            f"{kinds}. Hosts that are alike are drawn once; bold speeds are measured, speeds in "
            "italics and dashed links are assumed. A device or link says more on hover.",
            class_="note",
        ),
    )
