"""The page in Chromium, where there is one: charts are drawn, nothing is fetched, no name runs."""

import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.reports.verdict_logs import two_keys
from tests.tuccl.views.page.reported import HOSTILE, hostile
from tests.tuccl.views.page.test_follow import served
from tests.tuccl.views.page.unfinished import go_on, unfinish
from tuccl.reports.verdicts import read_verdicts
from tuccl.views.page.follow import FollowedPage, ServedPage
from tuccl.views.page.page import table_page, verdicts_page
from tuccl.views.page.tables import report_figures
from tuccl.workspace.runs import Run as WorkspaceRun

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not BROWSER, reason="no Chromium here: what a browser makes of the page is not tested"
    ),
]


_OWN = "not an origin"


def opened(page: Path | str, folder: Path, *options: str) -> tuple[str, str, list[str]]:
    """Return the document after its scripts, the log, and the addresses that the page asked for."""
    network = folder / "network.json"
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--host-resolver-rules=MAP * 0.0.0.0",
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={network}",
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            *options,
            "--dump-dom",
            page if isinstance(page, str) else page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    events = [event.get("params", {}) for event in json.loads(network.read_text())["events"]]
    asked = [
        event["url"]
        for event in events
        # The browser's own requests, as for the time, have no origin.
        if event.get("initiator", _OWN) != _OWN and not event["url"].startswith(("file:", "data:"))
    ]
    return done.stdout, done.stderr, asked


def charts_of(document: str) -> tuple[int, int]:
    """Return the number of charts, and of those that are drawn."""
    places = re.findall(r'<div class="chart[^"]*"', document)
    return len(places), sum("js-plotly-plot" in place for place in places)


def test_a_page_that_fetches_or_complains_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<img src="http://example.invalid/x.png"><script>console.error(1)</script>')
    _, log, asked = opened(page, tmp_path)
    assert asked[0] == "http://example.invalid/x.png"
    assert "CONSOLE" in log


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_charts_are_drawn_and_nothing_is_fetched(
    run_tuccl: Run, tuned: TunedWorkspace, tmp_path: Path, scheme: str
) -> None:
    assert run_tuccl("report").returncode == 0
    preferred = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    document, log, asked = opened(tmp_path / "tuccl-report.html", tmp_path, preferred)
    charts, drawn = charts_of(document)
    assert charts == drawn >= 8
    assert "CONSOLE" not in log
    assert "Refused" not in log
    assert asked == []


def test_hostile_names_run_nothing(tmp_path: Path) -> None:
    found = hostile()
    page = tmp_path / "hostile.html"
    figures = report_figures(found, (), "2026-01-02")
    page.write_text(table_page(figures, found, (), get_plotlyjs()))
    document, log, asked = opened(page, tmp_path)
    charts, drawn = charts_of(document)
    assert charts == drawn > 0
    assert "CONSOLE" not in log
    assert "<img" not in document
    assert "<script>alert" not in document
    assert asked == []


def test_the_page_of_verdicts_is_drawn(tmp_path: Path) -> None:
    page = tmp_path / "verdicts.html"
    found = read_verdicts(two_keys(tmp_path))
    page.write_text(verdicts_page(found, HOSTILE, "2026-01-02", get_plotlyjs()))
    document, log, asked = opened(page, tmp_path)
    assert charts_of(document) == (2, 2)
    assert "CONSOLE" not in log
    assert "<img" not in document
    assert asked == []


class GoesOn(FollowedPage):
    """A page whose run goes on when a browser has it and asks again."""

    def __init__(self, workspace: Path, run: WorkspaceRun) -> None:
        self._requests = 0
        self._go_on = partial(go_on, workspace, run, 800)
        super().__init__(workspace, None, lambda: 60.0 * self._requests)

    def now(self) -> ServedPage:
        self._requests += 1
        if self._requests == 4:
            self._go_on()
        return super().now()


def test_a_followed_page_changes_when_its_run_has_gone_on(
    tuned: TunedWorkspace, tmp_path: Path
) -> None:
    run = unfinish(tuned.root, 20)
    with served(GoesOn(tuned.root, run), get_plotlyjs()) as server:
        document, log, asked = opened(server.address, tmp_path)
    charts, drawn = charts_of(document)
    assert charts == drawn == 3
    assert "machine time and 798 measurements" in document
    assert "Followed: the page changes when the run has measured more." in document
    assert "CONSOLE" not in log
    assert "Refused" not in log
    assert {address.removeprefix(server.address) for address in asked} == {"", "plotly.js"}
