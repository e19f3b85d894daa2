"""Progress: honest counts, lines where there is no terminal, and what is left."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.errors import UsageError
from tuccl.search.trials.events import AtMost, Total
from tuccl.views.terminal.progress import (
    Lines,
    Pace,
    RunningStage,
    advanced,
    plain_progress,
    printed_lines,
)


def after(*reports: tuple[int, Total]) -> RunningStage:
    stage = None
    for done, total in reports:
        stage = advanced(stage, "stage", done, total, None, 0.0)
    assert stage is not None
    return stage


class TestHonesty:
    @pytest.mark.parametrize(
        "reports",
        [
            [(14, 1)],
            [(3, AtMost(2))],
            [(-1, 5)],
            [(2, 5), (1, 5)],
            [(2, 5), (3, 6)],
            [(2, 5), (3, None)],
            [(2, 5), (3, AtMost(5))],
            [(2, AtMost(5)), (3, AtMost(6))],
            [(2, AtMost(5)), (3, 6)],
            [(2, AtMost(5)), (3, None)],
        ],
    )
    def test_a_count_that_cannot_be_true_is_refused(self, reports: list[tuple[int, Total]]) -> None:
        with pytest.raises(ValueError, match=r"^stage: .*\d"):
            after(*reports)

    def test_a_total_becomes_known_and_a_bound_falls(self) -> None:
        assert after((0, None), (3, AtMost(9)), (4, AtMost(6)), (5, 5)).is_over

    def test_a_stage_that_was_over_may_begin_again(self) -> None:
        assert after((5, 5), (0, 3), (3, 3)).count() == "3 of 3 (100 %)"

    @given(
        st.lists(
            st.tuples(
                st.integers(-1, 6),
                st.one_of(st.none(), st.integers(0, 6), st.integers(0, 6).map(AtMost)),
            ),
            min_size=1,
        )
    )
    def test_whatever_is_taken_never_says_more_done_than_there_is(
        self, reports: list[tuple[int, Total]]
    ) -> None:
        stage: RunningStage | None = None
        for done, total in reports:
            try:
                stage = advanced(stage, "stage", done, total, None, 0.0)
            except ValueError:
                continue
            numbers = [int(text) for text in re.findall(r"\d+", stage.count().split("(")[0])]
            assert numbers[0] == stage.done
            assert numbers[0] <= numbers[-1]
            assert stage.done >= 0


class TestWhatALineSays:
    def test_known_bounded_and_unknown_totals_are_told_apart(self) -> None:
        assert after((12, 33)).count() == "12 of 33 (36 %)"
        assert after((14, AtMost(20))).count() == "14 so far, at most 20"
        assert after((14, None)).count() == "14 so far"
        assert after((0, 0)).count() == "0 of 0"

    def test_time_left_goes_by_the_share_that_is_over(self) -> None:
        stage = RunningStage("schedules", 4, 6, began_s=100.0, share=0.25)
        assert stage.line(130.0) == "schedules: 4 of 6 (66 %), 30 s, about 2 min left"

    def test_what_was_over_before_it_began_tells_nothing_of_its_pace(self) -> None:
        """Half was there already, a quarter took 30 s: so does the last quarter."""
        stage = RunningStage("schedules", 4, 6, began_s=100.0, share=0.75, first_share=0.5)
        assert stage.left_s(130.0) == pytest.approx(30.0)

    @pytest.mark.parametrize(("share", "now_s"), [(None, 60.0), (0.01, 60.0), (0.5, 1.0)])
    def test_time_left_is_not_told_where_it_is_not_known(
        self, share: float | None, now_s: float
    ) -> None:
        assert RunningStage("keys", 4, 6, began_s=0.0, share=share).left_s(now_s) is None


class Recorded:
    """Lines that are due at times that the test names."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lines = Lines(self.said.append, Pace(quiet_s=2.0, every_s=30.0, worth_s=5.0), 0.0)

    def report(self, now_s: float, done: int, total: Total, name: str = "stage") -> None:
        self.lines.report(name, done, total, None, now_s)

    def wait_until(self, now_s: float) -> None:
        while (due_s := self.lines.due_s()) <= now_s:
            self.lines.tick(due_s)


class TestWhenLinesCome:
    def test_what_takes_two_seconds_is_quiet(self) -> None:
        recorded = Recorded()
        recorded.report(0.0, 0, 2, "one")
        recorded.report(1.5, 2, 2, "one")
        recorded.report(1.6, 0, 2, "two")
        recorded.wait_until(3.5)
        recorded.report(3.5, 2, 2, "two")
        recorded.wait_until(20.0)
        assert recorded.said == []

    def test_a_stage_has_a_line_soon_then_every_30_s_and_one_at_its_end(self) -> None:
        recorded = Recorded()
        recorded.report(0.0, 0, 4)
        recorded.wait_until(10.0)
        recorded.report(10.0, 1, 4)
        recorded.wait_until(70.0)
        recorded.report(70.0, 4, 4)
        assert recorded.said == [
            "stage: 0 of 4 (0 %), 2 s",
            "stage: 1 of 4 (25 %), 32 s",
            "stage: 1 of 4 (25 %), 1 min 2 s",
            "stage: 4 of 4 done in 1 min 10 s",
        ]

    def test_nothing_is_silent_for_longer_than_30_s(self) -> None:
        recorded = Recorded()
        recorded.wait_until(40.0)
        recorded.report(40.0, 0, 1, "one")
        recorded.report(41.0, 1, 1, "one")
        recorded.wait_until(100.0)
        assert recorded.said == ["still running, 30 s", "still running, 19 s after one",
                                 "still running, 49 s after one"]  # fmt: skip

    @given(st.lists(st.tuples(st.floats(0.0, 90.0), st.sampled_from("abc"), st.integers(0, 3))))
    def test_whatever_is_reported_lines_are_never_further_apart(
        self, reports: Sequence[tuple[float, str, int]]
    ) -> None:
        times: list[float] = []
        now_s = 0.0
        lines = Lines(lambda _: times.append(now_s), Pace(), 0.0)
        for wait_s, name, done in reports:
            ends_s = now_s + wait_s
            while (due_s := lines.due_s()) <= ends_s:
                now_s = max(now_s, due_s)
                lines.tick(now_s)
            now_s = ends_s
            try:
                lines.report(name, done, 3, None, now_s)
            except ValueError:
                continue
        gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
        assert all(gap <= 30.0 + 1e-6 for gap in gaps)
        assert not times or now_s - times[-1] <= 30.0 + 1e-6


def double(number: int) -> int:
    return 2 * number


@pytest.mark.long
class TestPrinted:
    def test_lines_come_while_nothing_is_reported(self, capsys: pytest.CaptureFixture[str]) -> None:
        with printed_lines(Pace(0.01, 0.05, 0.05)) as progress:
            progress("schedules", 1, 3)
            time.sleep(0.4)  # One long step.
            progress("schedules", 3, 3)
        said = capsys.readouterr().err.splitlines()
        assert re.fullmatch(r"schedules: 3 of 3 done in \d+ s", said[-1])
        assert len(said) >= 4
        assert {line.split(",")[0] for line in said[:-1]} == {"schedules: 1 of 3 (33 %)"}

    def test_its_thread_ends_with_the_block_and_takes_no_signals(self) -> None:
        before = set(threading.enumerate())
        with printed_lines(Pace()):
            (thread,) = set(threading.enumerate()) - before
            status = Path(f"/proc/self/task/{thread.native_id}/status").read_text(encoding="ascii")
            (mask,) = (line[7:] for line in status.splitlines() if line.startswith("SigBlk"))
            assert int(mask, 16) >> 14 & int(mask, 16) >> 1 & 1, "bits of SIGTERM and SIGINT"
            assert thread.daemon
        assert set(threading.enumerate()) <= before

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_processes_may_start_meanwhile(
        self, method: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with printed_lines(Pace(0.0, 0.02, 0.0)) as progress:
            progress("pieces", 0, 2)
            with ProcessPoolExecutor(2, get_context(method)) as pool:
                assert list(pool.map(double, [1, 2])) == [2, 4]
            # Only a stage that had a line has one at its end; the pool may be done before it.
            while not capfd.readouterr().err.startswith("pieces: 0 of 2"):
                time.sleep(0.01)
            progress("pieces", 2, 2)
        said = capfd.readouterr().err.splitlines()
        assert sum("done in" in line for line in said) == 1

    def test_the_interval_is_the_users(self, capsys: pytest.CaptureFixture[str]) -> None:
        with plain_progress({"TUCCL_PROGRESS_EVERY": "20ms"}) as progress:
            progress("keys", 0, 2)
            time.sleep(0.3)
        assert len(capsys.readouterr().err.splitlines()) >= 3
        with (
            pytest.raises(UsageError, match="TUCCL_PROGRESS_EVERY"),
            plain_progress({"TUCCL_PROGRESS_EVERY": "often"}),
        ):
            pass


def test_all_of_the_pace_is_scaled() -> None:
    assert Pace(2.0, 30.0, 5.0).scaled_to(60.0) == Pace(4.0, 60.0, 10.0)
