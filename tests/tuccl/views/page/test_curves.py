"""Curves over size: a line ends where a size has no time of its series."""

from tests.tuccl.views.page.reported import reported
from tuccl.views.page.curves import curve_charts
from tuccl.views.page.figures.table_figures import table_figures


def test_no_line_is_drawn_over_a_size_without_a_time() -> None:
    """The plugin has times of 1K and 4K; at 2K a schedule alone was measured."""
    ((_, bandwidth, latency),) = curve_charts(table_figures(reported(), None))
    stock, plugin, schedule = latency.traces
    assert stock["y"] == [16.0] * 4
    assert (plugin["x"], plugin["y"]) == ([1024, 2048, 4096], [8.0, None, 8.0])
    assert plugin["text"][1] == ""
    assert (schedule["x"], schedule["y"]) == ([1024, 2048], [4.0, 2.0])
    # 1 KB in 8 us, twice 3 of 4 parts.
    assert bandwidth.traces[1]["y"][:2] == [1.5 * 1024e-3 / 8.0, None]
    assert bandwidth.layout["yaxis"]["tickvals"][0] <= 1.5 * 1024e-3 / 16.0
