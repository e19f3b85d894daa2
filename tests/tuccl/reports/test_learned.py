"""What a job learned, read from the files of its processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, ScheduleConfig, Shape
from tuccl.errors import InputFileError
from tuccl.reports.learned import ArmKind, read_learned

RING = {"is": "setting", "algorithm": "ring", "protocol": "LL128", "nchannels": 32,
        "chunk_bytes": 131072, "time_us": 10.0, "refused": False}  # fmt: skip
NCCL = {"is": "nccl", "time_us": 25.0, "refused": False}


def learned_file(**changes: Any) -> dict[str, Any]:
    """One size of all_gather, for which a ring won."""
    key = {"operation": "all_gather", "bytes": 4096, "calls": 900, "races": 1, "choice": 1,
           "arms": [NCCL, RING], **changes}  # fmt: skip
    communicator = {"ranks": 8, "nodes": 2, "ranks_per_node": 4, "calls": 1000, "reports": 5,
                    "slower_us": 12.5, "elapsed_us": 1000000, "keys": [key]}  # fmt: skip
    return {"tuccl_learned": 2, "host": "node1", "process": 7,
            "written_at": "2026-01-02T03:04:05+00:00", "communicators": [communicator]}  # fmt: skip


def written(folder: Path, document: dict[str, Any], name: str = "learned.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_a_file_has_choices_and_their_times(tmp_path: Path) -> None:
    learned = read_learned([written(tmp_path, learned_file())])
    assert (learned.hosts, learned.written_at) == (("node1",), "2026-01-02T03:04:05+00:00")
    (key,) = learned.keys
    assert (key.operation, key.size_bytes, key.shape) == (
        Collective.ALL_GATHER,
        4096,
        Shape(8, 2, 4),
    )
    assert key.chosen.setting == BuiltinConfig(
        NcclAlgorithm.RING, NcclProtocol.LL128, 32, 128 << 10
    )
    assert key.chosen.text == "ring/LL128 on 32 channels in chunks of 131072 bytes"
    assert (key.nccl_us, key.gain) == (25.0, 2.5)
    assert key.arms[0].kind is ArmKind.NCCL


def test_a_schedule_has_its_parameters(tmp_path: Path) -> None:
    schedule = {"is": "schedule", "schedule": "5a5a", "name": "all_reduce_rings", "protocol": "LL",
                "nchannels": 4, "nthreads": 512, "buffer_bytes": 65536, "time_us": 5.0,
                "refused": False}  # fmt: skip
    (key,) = read_learned([written(tmp_path, learned_file(arms=[NCCL, schedule]))]).keys
    assert key.chosen.schedule == ScheduleConfig("5a5a", NcclProtocol.LL, 4, 512, 65536)
    assert (key.chosen.text, key.gain) == ("all_reduce_rings LL ch4 th512", 5.0)
    del schedule["schedule"]
    with pytest.raises(InputFileError, match="a schedule without its name"):
        read_learned([written(tmp_path, learned_file(arms=[NCCL, schedule]))])


def test_of_several_communicators_the_one_that_called_most_counts(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, learned_file(calls=500, choice=0), "a.json"),
        written(tmp_path, learned_file(calls=700), "b.json"),
        written(tmp_path, learned_file(calls=9000, races=0, choice=0), "c.json"),
    ]
    (key,) = read_learned(paths).keys
    assert (key.calls, key.choice) == (700, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"choice": 2},
        {"operation": "all_scatter"},
        {"bytes": -1},
        {"arms": []},
        {"arms": [NCCL, {**RING, "algorithm": "star"}]},
        {"arms": [NCCL, {"is": "setting", "time_us": 1.0, "refused": False}]},
        {"arms": [NCCL, {**RING, "time_us": float("inf")}]},
        {"other": 1},
    ],
)
def test_a_damaged_file_is_refused_in_a_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = written(tmp_path, learned_file(**changes))
    with pytest.raises(InputFileError, match=r"learned\.json") as raised:
        read_learned([path])
    assert "\n" not in str(raised.value)


def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="version 2"):
        read_learned([written(tmp_path, {**learned_file(), "tuccl_learned": 1})])
