"""A job's communicators, each with the entry of its shape, over stand-ins of CUDA and NCCL."""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, Key, NcclAlgorithm, NcclProtocol, Shape
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.search.trials.allowed_pairs import HGX_H100
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, placed_pairs, ship_entries
from tuccl.crew.places import LocalPlaces
from tuccl.errors import MeasurementError
from tuccl.measuring.engines.job import Job, Site, divisions_of
from tuccl.measuring.engines.job_processes import STOCK
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import read_shipped_table

pytestmark = pytest.mark.long

SIZE = 64 << 10
WHOLE, NODE, RAIL, PAIRS = Shape(8, 2, 4), Shape(4, 1, 4), Shape(2, 2, 1), Shape(2, 1, 2)
CHANNELS = {WHOLE: 8, NODE: 4, RAIL: 2}
PLACES = {WHOLE: (8, 2, 4), NODE: (4, 1, 4), RAIL: (2, 2, 1)}


@pytest.fixture
def site(stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Two faked nodes of four GPUs, whose ranks log what the plugin does."""
    monkeypatch.syspath_prepend(str(stand_ins.libraries))
    logs = {"NCCL_DEBUG_FILE": f"{tmp_path}/log.%p", "TUCCL_EXPLAIN": "1", "STAND_IN_GPUS": "8"}
    places = LocalPlaces(8, 8, os.environ | stand_ins.variables | logs)
    return Site(places, WHOLE, Timing(graph=False), (4, 4), ((NODE, 1), (RAIL, 1), (PAIRS, 1)))


def test_the_plugin_finds_the_entry_of_each_communicator_and_leaves_others_to_nccl(
    site: Site, stand_ins: StandIns, tmp_path: Path
) -> None:
    entries = [
        all_gather_entry(channels, size_bytes=SIZE, shape=shape)
        for shape, channels in sorted(CHANNELS.items())
    ]
    shipped = ship_entries(tmp_path / "shipped", stand_ins, *entries)
    table = read_shipped_table(shipped, "shipped")
    with closing(site.places), Job(site, table) as job:
        for shape in (WHOLE, NODE, RAIL, PAIRS):
            assert job.check(Task(Collective.ALL_GATHER, SIZE, shape)) == "nccl"
        assert job.time_us(JobCall(Task(Collective.ALL_GATHER, SIZE, RAIL))) > 0
    logs = [path.read_text() for path in tmp_path.glob("log.*")]
    assert len(logs) == 8
    wanted = [f"wants Ring/Simple on {channels} channels" for channels in CHANNELS.values()]
    for log in logs:
        for ranks, nodes, each in PLACES.values():
            assert f": 1 entries for {ranks} ranks on {nodes} nodes, {each} per node\n" in log
        assert "has no entries for 2 ranks on 1 nodes, 2 per node; NCCL stays as it is\n" in log
        # In the order of the checks; the pairs' calls are in no line.
        asked = re.findall(f"all_gather of {SIZE} bytes: .* (wants .* channels) .*: applied", log)
        assert list(dict.fromkeys(asked)) == wanted


def test_calls_on_registered_buffers_run_on_windows_of_their_communicator(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call takes 3 ms, and is fast where it sends from a window."""
    monkeypatch.syspath_prepend(str(stand_ins.libraries))
    slow = {"STAND_IN_CHANNELS": "1", "STAND_IN_FAST_WINDOWS": "1"}
    places = LocalPlaces(2, 2, os.environ | stand_ins.variables | slow)
    task = Task(Collective.ALL_GATHER, SIZE, PAIRS)
    with closing(places), Job(Site(places, PAIRS, Timing(graph=False)), STOCK) as job:
        registered = job.time_us(JobCall(task, in_windows=True))
        assert registered < 1000.0 < job.time_us(JobCall(task))


def test_communicators_of_a_placement_run_its_entry(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours have an entry of their own, pairs two apart that of any pair."""
    monkeypatch.syspath_prepend(str(stand_ins.libraries))
    shipped = ship_entries(
        tmp_path / "shipped",
        stand_ins,
        all_gather_entry(2, size_bytes=SIZE),
        placements=placed_pairs((4,), (), size_bytes=SIZE),
    )
    table = read_shipped_table(shipped, "shipped")
    logs = {"NCCL_DEBUG_FILE": f"{tmp_path}/log.%p", "TUCCL_EXPLAIN": "1", "STAND_IN_GPUS": "4"}
    four = Shape(4, 1, 4)
    tasks = [
        Task(Collective.ALL_GATHER, SIZE, PAIRS, Placement(stride, (0, 1))) for stride in (1, 2)
    ]
    stated = [table.stated(task) for task in tasks]
    assert [key and key.gain.ratio for key in stated] == [pytest.approx(1.5), None]
    assert [table.example(task) for task in tasks] == ["gpu0 and gpu1", "gpu0 and gpu2"]
    with closing(LocalPlaces(4, 4, os.environ | stand_ins.variables | logs)) as places:
        site = Site(places, four, Timing(graph=False), (), divisions_of(tasks, four))
        with Job(site, table) as job:
            for task in tasks:
                job.check(task)
    for path in tmp_path.glob("log.*"):
        asked = re.findall(f"all_gather of {SIZE} bytes: .*wants .* (.) channels", path.read_text())
        assert list(dict.fromkeys(asked)) == ["4", "2"]
        used = [entry.builtin for task in tasks if (entry := table.entry(task))]
        assert [str(own.nchannels) for own in used if own] == ["4", "2"]


def test_a_job_names_the_communicator_whose_call_is_wrong(
    site: Site, stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = ship_entries(tmp_path / "shipped", stand_ins, all_gather_entry(8, shape=RAIL))
    table = read_shipped_table(shipped, "shipped")
    wrong = {"STAND_IN_CORRUPTS": "all_gather", "STAND_IN_CORRUPTS_HOST": "tuccl-node1"}
    for name, value in wrong.items():
        monkeypatch.setitem(table.variables, name, value)
    text = r"all_gather of 64K on 4 ranks on 1 node\(s\): wrong data: rank 4: "
    with closing(site.places), pytest.raises(MeasurementError, match=text), Job(site, table) as job:
        job.check(Task(Collective.ALL_GATHER, SIZE, NODE))


@pytest.mark.parametrize("without", ["", "2", "all"])
def test_a_rank_without_multicast_leaves_all_ranks_to_nccl(
    without: str, stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry of NVLS in four processes: asked for by all of them, or by none."""
    monkeypatch.syspath_prepend(str(stand_ins.libraries))
    four = Shape(4, 1, 4)
    nvls = BuiltinConfig(NcclAlgorithm.NVLS, NcclProtocol.SIMPLE, 16)
    key = Key(Collective.ALL_REDUCE, SIZE, SIZE, four, "test")
    entry = replace(all_gather_entry(16, size_bytes=SIZE), key=key, builtin=nvls)
    shipped = ship_entries(tmp_path / "shipped", stand_ins, entry)
    variables = {
        "NCCL_DEBUG_FILE": f"{tmp_path}/log.%p",
        "TUCCL_EXPLAIN": "1",
        "STAND_IN_GPUS": "4",
        "STAND_IN_ALLOWS": HGX_H100,
        **({"STAND_IN_WITHOUT_MULTICAST": without} if without else {}),
    }
    table = read_shipped_table(shipped, "shipped")
    places = LocalPlaces(4, 4, os.environ | stand_ins.variables | variables)
    site = Site(places, four, Timing(graph=False), (), ())
    with closing(places), Job(site, table) as job:
        assert job.check(Task(Collective.ALL_REDUCE, SIZE, four)) == "nccl"
    found = [
        re.findall(
            f"all_reduce of {SIZE} bytes: .* wants NVLS/Simple on 16 .*: ([^;]*);", log.read_text()
        )
        for log in tmp_path.glob("log.*")
    ]
    assert len(found) == 4
    said = "cannot run here, NCCL decides" if without else "applied"
    assert {line for lines in found for line in lines} == {said}
    assert all(found)
