"""The verdicts of check_training.py, and the commands that it runs."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest
from check_training import is_right, job_command, machine_words, shares


def bench(predicted_us: float, measured_us: float, *, slower: bool = False) -> dict[str, Any]:
    saving = {"predicted_us": predicted_us, "measured_us": measured_us, "step_us": 10000.0}
    return {"slower": slower, "saving": saving}


MODEL = {"steps": 200, "width": 512, "sequence": 128, "layers": 80}


def test_a_saving_may_be_off_by_five_hundredths_of_the_step() -> None:
    assert shares(bench(2000.0, 1510.0)) == pytest.approx((0.2, 0.151))
    assert is_right(bench(2000.0, 1510.0))
    assert not is_right(bench(2000.0, 1490.0))
    assert not is_right(bench(0.0, 510.0))
    assert not is_right(bench(100.0, -100.0, slower=True))
    assert is_right({"slower": False, "saving": None})


def test_job_and_table_are_of_the_same_ranks() -> None:
    job = Namespace(nodes=2, share_gpus=True, gpus=None, limit=60.0, **MODEL)
    model = "--steps 200 --width 512 --sequence 128 --layers 80"
    words = f"mesh --nodes 2 --limit 60.0 {model} --share-gpus"
    assert " ".join(job_command("mesh", job)[2:]) == words
    assert machine_words(job) == ["--nodes", "2", "--fake-nodes", "--share-gpus"]
    assert machine_words(Namespace(nodes=1, share_gpus=False, gpus=None)) == []


def test_ranks_of_a_node_may_share_a_gpu() -> None:
    job = Namespace(nodes=2, share_gpus=True, gpus=2, limit=60.0, **MODEL)
    assert " ".join(job_command("mesh", job)[-3:]) == "--gpus 2 --share-gpus"
    faked = ["--fake-nodes", "--share-gpus", "--node-gpus"]
    assert machine_words(job) == ["--nodes", "2", *faked, "2,2"]
    job.nodes, job.gpus = 1, 4
    assert machine_words(job) == [*faked, "4"]
