"""docs/guide/schedule-dsl.md: its code runs, with the results that the page states."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probes.files.read import read_topology, shipped_machines
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates
from synthesizer.lower.lowering import lower
from tests.synthesizer.proofs import busbw_gb_per_s, proved

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "guide" / "schedule-dsl.md").read_text(encoding="utf-8")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names that the page's code defines, after a run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(code, "docs/guide/schedule-dsl.md", "exec"), names)  # noqa: S102 - our own page
    return names


@pytest.mark.long
def test_tuccl_verify_says_what_the_page_shows(page: dict[str, Any]) -> None:
    shown = re.findall(r"```console\n\$ tuccl (.*?)\n(.*?)\n```", PAGE, re.DOTALL)
    assert len(shown) == 3
    for arguments, output in shown:
        start = [sys.executable, "-c", "from tuccl.cli.app import main; main()"]
        done = subprocess.run(
            [*start, *arguments.split()],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert (done.returncode, done.stdout.strip()) == (0, output)


@pytest.mark.parametrize(("nodes", "gpus"), [(2, 2), (2, 3), (3, 2), (3, 4), (2, 8)])
def test_the_example_is_right_on_any_shape(page: dict[str, Any], nodes: int, gpus: int) -> None:
    proved(page["rail_all_reduce"](nodes, gpus).program())


def test_the_example_takes_few_lines() -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    (function,) = [node for node in ast.parse(example).body if isinstance(node, ast.FunctionDef)]
    assert function.end_lineno is not None
    assert function.end_lineno - function.lineno <= 22


def test_what_is_refused_is_what_the_comments_say(page: dict[str, Any]) -> None:
    unordered, empty, stale = page["refused"]
    assert "both write chunk 0 of scratch of rank 2, and nothing orders them" in unordered
    assert "chunk 0 of scratch of rank 1 holds nothing yet" in empty
    assert "chunk 0 of scratch of rank 2 is read after the reduction" in stale


def _busbw_gb_per_s(code: str) -> float:
    """Return the bus bandwidth of the example on two nodes of eight A100."""
    network = Network(2.0, NetworkLayout.RAILS)
    machine = replicate(read_topology(shipped_machines()["a100-8gpu-8nic"]), 2, network)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own page
    algorithm = lower(names["rail_all_reduce"](2, 8).program(), "example")
    return busbw_gb_per_s(algorithm, sketch_candidates(machine)[0])


def _part_by_part(code: str) -> str:
    """Return the example with all phases in one loop over the parts."""
    loop = "    for part, rail in enumerate(rails):\n"
    first, *later = code.split(loop)[1:]
    head = code.split(loop, maxsplit=1)[0]
    return head + loop + first + "".join(later)


def test_phases_have_channels_of_their_own_in_either_order() -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    shared = example.replace("SCRATCH, 0)\n    for", "SCRATCH, 0, channel=0)\n    for")
    shared = shared.replace("copy(mate, OUTPUT, part)", "copy(mate, OUTPUT, part, channel=0)")
    assert shared.count("channel=0") == 2
    assert _part_by_part(example).count("enumerate(rails)") == 1
    found = [_busbw_gb_per_s(code) for code in (example, _part_by_part(example), shared)]
    figures = re.search(r"simulated at (\d+) GB/s.*?it is (\d+)\.", PAGE, re.DOTALL)
    assert figures is not None
    apart, together = map(float, figures.groups())
    assert found == pytest.approx([apart, apart, together], rel=0.01)
