"""The page: one HTML file that fetches nothing, with its script, style and figures inside.

Its content security policy names the two scripts by their hashes, so that no other would run, and
allows no connection, except to the server of a page that is followed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from tuccl.views.page.charts import Chart
from tuccl.views.page.elements import Markup, data_script, element, joined, trusted

PLOTLY_ADDRESS = "/plotly.js"
TITLE_MARK = "TuCCL report"
"""Text by which a file is known as a report."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    identity: str
    title: str
    content: Markup
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of a page besides its own."""

    plotly: str = ""
    """Draws charts; empty: a server has it at `PLOTLY_ADDRESS`."""
    following: str = ""
    """Replaces the content of a page that a server keeps up to date; empty: none does."""


def page(
    title: str, heading: Markup, sections: Sequence[Section], closing: Markup, scripts: Scripts
) -> str:
    """Return the text of the page.

    Args:
        title: Title of the window.
        heading: What stands above the first section.
        sections: Its parts, in their order.
        closing: What stands below the last section.
        scripts: The scripts besides that of the page itself.
    """
    style = trusted(_own_file("page.css"))
    running = list(filter(None, (scripts.plotly, _own_file("page.js"), scripts.following)))
    fetched = "" if scripts.plotly else element("script", src=PLOTLY_ADDRESS)
    charts = {chart.identity: chart.content for part in sections for chart in part.charts}
    head = joined(
        [
            trusted('<meta charset="utf-8">'),
            trusted(
                f'<meta http-equiv="Content-Security-Policy" content="{_policy(running, scripts)}">'
            ),
            trusted('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            trusted('<meta name="color-scheme" content="light dark">'),
            trusted(f'<meta name="generator" content="{TITLE_MARK}">'),
            element("title", title),
            element("style", style),
        ]
    )
    body = joined(
        [
            element("a", "To the figures", href="#figures", class_="skip"),
            element("header", heading, _contents(sections)),
            element("main", *map(_section, sections), id="figures"),
            element("footer", closing),
            data_script("charts", charts),
            fetched,
            *(element("script", trusted(script)) for script in running),
        ]
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">{element("head", head)}{element("body", body)}</html>\n'
    )


def following_script() -> str:
    """Return the script that asks the page's server for another content."""
    return _own_file("follow.js")


def _own_file(name: str) -> str:
    return files("tuccl.views.page").joinpath(name).read_text(encoding="utf-8")


def _policy(running: Iterable[str], scripts: Scripts) -> str:
    hashes = (b64encode(sha256(script.encode()).digest()).decode() for script in running)
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    if not scripts.plotly:
        allowed += " 'self'"
    connecting = " connect-src 'self';" if scripts.following else ""
    return (
        f"default-src 'none'; script-src {allowed};{connecting} "
        "style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _contents(sections: Sequence[Section]) -> Markup:
    items = (element("li", element("a", part.title, href=f"#{part.identity}")) for part in sections)
    return element("nav", element("ul", *items), aria_label="Parts of the report")


def _section(part: Section) -> Markup:
    heading = element("h2", part.title, id=f"{part.identity}-title")
    return element(
        "section",
        heading,
        part.content,
        id=part.identity,
        aria_labelledby=f"{part.identity}-title",
    )
