"""The page: whole markup, nothing from elsewhere, and no name that becomes markup."""

import re

import pytest

from tests.tuccl.html_report.reported import HOSTILE, hostile, reported, seen
from tests.tuccl.tuned_tables import SIXTEEN_GPUS
from tuccl.html_report.figures.places import ReportedTable
from tuccl.html_report.figures.report_figures import ReportFigures
from tuccl.html_report.figures.table_figures import table_figures
from tuccl.html_report.plotly_script import plotly_script
from tuccl.html_report.report import report_page

DRAWS = "Plotly = {};"
"""Stands for plotly's script, of 5 MB, where a test parses pages."""


def page_of(found: ReportedTable) -> str:
    figures = ReportFigures("2026-01-02", (table_figures(found, None),))
    return report_page(figures, found, (), DRAWS)


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
    found = seen(page_of(reported(SIXTEEN_GPUS)))
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


def test_plotly_is_small_enough_and_ends_no_script() -> None:
    script = plotly_script()
    assert "MIT license" in script[:400]
    assert len(script.encode()) < 5_000_000
