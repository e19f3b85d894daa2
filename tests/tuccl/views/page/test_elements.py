"""Markup escapes all texts and attributes."""

import json

import pytest

from tests.tuccl.views.page.reported import HOSTILE, seen
from tuccl.views.page.elements import data_script, element, joined


def test_texts_and_attributes_are_escaped_and_markup_is_kept() -> None:
    inner = element("b", HOSTILE)
    found = seen(element("p", inner, HOSTILE, title=HOSTILE, class_="note", data_kind=3))
    assert found.tags == [
        ("p", {"title": HOSTILE, "class": "note", "data-kind": "3"}),
        ("b", {}),
    ]
    assert "".join(found.texts) == 2 * HOSTILE


def test_an_attribute_is_left_out_or_without_a_value() -> None:
    assert element("td", hidden=True, title=None, selected=False) == "<td hidden></td>"
    assert joined(["<", element("i", ">")]) == "&lt;<i>&gt;</i>"


def test_data_end_no_script() -> None:
    found = seen(data_script("figures", {"name": HOSTILE + "</script><!--"}))
    assert [tag for tag, _ in found.tags] == ["script"]
    assert json.loads(found.scripts[0]) == {"name": HOSTILE + "</script><!--"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        data_script("figures", float("nan"))
