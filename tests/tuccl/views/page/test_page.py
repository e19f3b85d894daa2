"""The page: whole markup, nothing from elsewhere, and no name that becomes markup."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from probes.files.read import shipped_machines
from tests.tuccl.tuned_tables import MANY_GPUS, TWO_HOSTS
from tests.tuccl.views.page.reported import HOSTILE, hostile, of_three_shapes, reported, seen
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.views.page.page import table_page
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.tables import ReportFigures, table_figures

DRAWS = "Plotly = {};"
"""Stands for plotly's script, of 5 MB, where a test parses pages."""


def page_of(found: ReportedTable) -> str:
    figures = ReportFigures("2026-01-02", (table_figures(found, None),))
    return table_page(figures, found, (), DRAWS)


def test_a_page_fetches_nothing_and_runs_its_own_scripts_alone() -> None:
    found = seen(page_of(reported()))
    assert not {"link", "iframe", "img", "base", "object"} & {tag for tag, _ in found.tags}
    addresses = [
        value
        for _, attributes in found.tags
        for name, value in attributes.items()
        if name in {"src", "href", "action", "srcset"}
    ]
    assert all(address is not None and address.startswith("#") for address in addresses)
    policy = next(
        meta["content"]
        for meta in found.named("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert len(re.findall(r"'sha256-[\w+/=]{44}'", policy)) == 2


def test_names_never_become_markup() -> None:
    usual, strange = seen(page_of(reported())), seen(page_of(hostile()))
    kinds = [tag for tag, _ in strange.tags]
    assert "img" not in kinds
    assert kinds.count("script") == [tag for tag, _ in usual.tags].count("script")
    assert not any(name.startswith("on") for _, attributes in strange.tags for name in attributes)
    assert sum(HOSTILE in text for text in strange.texts) > 5
    # Charts read texts with some tags in them, so these are escaped there once more.
    data = next(text for text in strange.scripts if text.startswith("{"))
    assert "alert(1)" in data
    assert "<" not in data
    assert "\\u003cscript" not in data


@pytest.mark.parametrize("backend", ["nccl,executor", "simulated", "sockets"])
def test_what_is_not_measured_is_named_hatched_and_dashed(backend: str) -> None:
    page = page_of(reported(backend=backend))
    is_measured = backend == "nccl,executor"
    word = {"simulated": "modelled", "sockets": "stand-in"}.get(backend, "measured")
    assert f'class="word {word}"' in page
    assert f'class="cell gain {word}"' in page
    assert ('"dash":"solid"' in page) is is_measured
    assert ("Hatched: not measured." in page) is not is_measured


def test_every_chart_has_an_alternative_text_and_every_part_a_title() -> None:
    found = seen(page_of(reported(MANY_GPUS)))
    charts = [each for each in found.named("div") if each.get("class") == "chart"]
    assert len(charts) == 2
    for chart in charts:
        assert chart["role"] == "img"
        assert "all_reduce over sizes from 1K to 8K" in str(chart["aria-label"])
    identities = {str(each["id"]) for _, each in found.tags if "id" in each}
    for part in found.named("section"):
        assert part["aria-labelledby"] in identities
    for link in found.named("a"):
        assert str(link["href"]).removeprefix("#") in identities


def test_tables_without_entries_have_a_page() -> None:
    found = reported()
    empty = replace(found, table=replace(found.table, entries=()))
    assert "no keys" in page_of(replace(empty, report=None))
    machine = load_machine(MachineOptions(topology=str(shipped_machines()["h200-4gpu"])))
    texts = " ".join(seen(page_of(replace(empty, machine=machine))).texts)
    assert "1.000x" in texts
    assert "the geometric mean over 4 keys" in texts


def test_shapes_have_their_names_as_in_the_table() -> None:
    page = seen(page_of(of_three_shapes()))
    texts = " ".join(page.texts)
    assert "whole, 4 ranks on 2 nodes; node, 2 ranks on 1 node; rail, 2 ranks on 2 nodes" in texts
    assert "By shape: whole 1.000x over 4 keys, node 2.828x over 4 keys, rail 1.000x" in texts
    rows = page.texts.index("whole, 4 ranks on 2 nodes"), page.texts.index("whole all_reduce")
    assert rows[0] < rows[1] < page.texts.index("node, 2 ranks on 1 node")
    cells = [cell["title"] for cell in page.named("td") if "cell" in (cell.get("class") or "")]
    assert len(cells) == 12
    assert sum((title or "").startswith("node all_reduce ") for title in cells) == 4


def test_shapes_of_communicators_have_rows_of_their_own() -> None:
    found = reported()
    more = tuple(
        replace(entry, key=replace(entry.key, shape=TWO_HOSTS)) for entry in found.table.entries
    )
    table = replace(found.table, entries=(*found.table.entries, *more))
    page = seen(page_of(replace(found, table=table, report=None)))
    for shape in ("4 ranks on 1 node", "8 ranks on 2 nodes"):
        assert {shape, f"{shape} all_reduce"} <= set(page.texts)
        assert shape in page.texts
    assert "communicator" in page.texts


def relative_luminance(colour: tuple[float, ...]) -> float:
    """As WCAG 2.2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text: tuple[float, ...], ground: tuple[float, ...]) -> float:
    light, dark = sorted((relative_luminance(text), relative_luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_and_lines_have_the_contrast_of_wcag_aa(scheme: int) -> None:
    style = files("tuccl.views.page").joinpath("templates/page.css").read_text(encoding="utf-8")
    known = re.findall(r"--([\w-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\);", style)
    assert len(known) > 15
    colours = {
        name: tuple(int(pair[scheme][at : at + 2], 16) / 255 for at in (0, 2, 4))
        for name, *pair in known
    }
    hues = ("grey", "blue", "orange", "green", "plum", "violet", "olive")
    for ground in ("page", "surface"):
        for text in ("ink", "muted", "focus", "orange"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for hue in hues:
            assert contrast(colours[hue], colours[ground]) >= 3.0, (hue, ground)
    for hue in ("gain", "loss"):
        # The strongest cell is mixed of 60 % of its hue.
        pairs = zip(colours[hue], colours["surface"], strict=True)
        mixed = tuple(0.6 * own + 0.4 * below for own, below in pairs)
        assert contrast(colours["ink"], mixed) >= 4.5, hue
    for ground in ("dropped", "network", "kept", "none"):
        assert contrast(colours["ink"], colours[ground]) >= 4.5, ground
