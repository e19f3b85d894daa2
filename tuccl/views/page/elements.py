"""Markup from functions that escape everything: only what they return counts as markup."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any


class Markup(str):
    """Text that is markup, made by the functions of this module."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | float | bool | None) -> Markup:
    """Return an element with its children.

    Args:
        name: Name of the element, as `td`.
        children: Markup, and texts, which are escaped.
        attributes: Values by name, where `_` stands for `-` and one at the end is dropped, as in
            `class_`; None and False leave an attribute out, True gives it no value.
    """
    words = [name]
    for key, value in attributes.items():
        attribute = key.removesuffix("_").replace("_", "-")
        if value is True:
            words.append(attribute)
        elif value is not None and value is not False:
            words.append(f'{attribute}="{escape(str(value))}"')
    content = "".join(map(markup, children))
    return Markup(f"<{' '.join(words)}>{content}</{name}>")


def markup(text: str) -> Markup:
    """Return markup as it is, and any other text escaped."""
    return text if isinstance(text, Markup) else Markup(escape(text))


def joined(parts: Iterable[str]) -> Markup:
    """Return markup and texts in a row."""
    return Markup("".join(map(markup, parts)))


def trusted(text: str) -> Markup:
    """Return text that this package or the project's drawing made as markup."""
    return Markup(text)


def data_script(identity: str, data: Any) -> Markup:
    """Return data as JSON in an element that runs nothing and that no content can end.

    Raises:
        ValueError: A figure is not a number of JSON.
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(identity)}">{text}</script>')


def chart_text(text: str) -> str:
    """Return a text for a chart, whose labels understand some tags and entities."""
    return escape(text)
