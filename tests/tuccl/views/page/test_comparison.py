"""Two tables compared: ratios with bounds, and what else differs; nothing in common is refused."""

from dataclasses import replace

import pytest

from tests.tuccl.tuned_tables import MANY_GPUS
from tests.tuccl.views.page.reported import HOSTILE, hostile, reported, seen
from tuccl.errors import UsageError
from tuccl.views.page.page import comparison_page
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.tables import ReportFigures, TableFigures, compare, table_figures


def figures(found: ReportedTable) -> TableFigures:
    return table_figures(found, None)


def test_a_ratio_is_of_a_jobs_times() -> None:
    without = figures(reported(has_executor=False))
    compared = compare(without, figures(reported()))
    # Schedules take 4 and 2 us where the plugin takes 8 us and NCCL itself 16 us.
    assert [key.ratio for key in compared.keys] == pytest.approx([2.0, 8.0, 1.0, 1.0])
    assert compared.ratio == pytest.approx(16 ** (1 / 4))
    first = compared.keys[0]
    a, b = first.first.job, first.second.job
    assert None not in {a.low_us, a.high_us, b.low_us, b.high_us}
    assert first.low == pytest.approx((a.low_us or 0) / (b.high_us or 1))
    assert first.high == pytest.approx((a.high_us or 0) / (b.low_us or 1))
    assert compared.keys[3].low is None
    assert compared.remarks == ()


def test_what_differs_beside_the_tables_is_told() -> None:
    first = figures(reported(backend="simulated"))
    found = reported()
    entries = tuple(replace(each, default_time_us=32.0) for each in found.table.entries)
    shipped = replace(found, report=None, table=replace(found.table, entries=entries))
    second = replace(figures(shipped), fingerprint="cd" * 16, nccl_version="2.28.9")
    told = " | ".join(compare(first, second).remarks)
    for words in (
        "the machines differ: machine (abab",
        "times of the first are modelled, of the second measured",
        "NCCL differs: not stated and 2.28.9",
        "those of the first are 0.500 times those of the second",
        "1 key of workspace not compared",
    ):
        assert words in told


def test_tables_without_a_common_key_are_refused() -> None:
    with pytest.raises(UsageError, match="no operation, size and communicator in common"):
        compare(figures(reported()), figures(reported(MANY_GPUS)))


def test_the_page_of_two_has_both_and_no_names_as_markup() -> None:
    tables = (figures(reported()), figures(hostile()))
    compared = compare(*tables)
    page = comparison_page(ReportFigures("2026-01-02", tables, comparison=compared), "Plotly = {};")
    found = seen(page)
    kinds = [tag for tag, _ in found.tags]
    assert "img" not in kinds
    assert kinds.count("script") == 3
    assert any(HOSTILE in text for text in found.texts)
    assert any(text.startswith(f"{compared.ratio:.3f}x") for text in found.texts)
    identities = [each["id"] for _, each in found.tags if "id" in each]
    assert len(identities) == len(set(identities))
