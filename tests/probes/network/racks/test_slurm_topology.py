import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.racks.rack_map import _joined, parse_slurm_topology
from tuccl.errors import MachineError

LEAVES = {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}


def test_leaves_of_a_configuration() -> None:
    text = """\
# two leaves
SwitchName=leaf1 LinkSpeed=400 \\
    Nodes=n[1-2]
switchname=leaf2 nodes=n[3-4]
SwitchName=spine Switches=leaf[1-2]   # the top
"""
    assert parse_slurm_topology(text) == LEAVES


def test_leaves_of_what_scontrol_shows() -> None:
    text = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2] Switches=(null)
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
"""
    assert parse_slurm_topology(text) == LEAVES


def test_blocks_are_leaves() -> None:
    text = "BlockName=b1 Nodes=n[1-2]\nBlockSizes=2,4\n"
    assert parse_slurm_topology(text) == {"n1": "b1", "n2": "b1"}


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n",
        "SwitchName=a\\\n Nodes=n1\nNodes=n2\n",
        "SwitchName=a\n",
        "SwitchName=a Nodes=n[1-\n",
        "SwitchName = a\n",
        "---\n- topology: topo1\n",
        "- topology: topo1\n",
    ],
)
def test_malformed_files_are_refused(text: str) -> None:
    with pytest.raises(MachineError, match=r"topology\.conf "):
        parse_slurm_topology(text)


def test_hosts_are_limited_per_file_and_not_per_line() -> None:
    text = "".join(f"SwitchName=s{leaf} Nodes=n{leaf}-[1-60000]\n" for leaf in range(300))
    with pytest.raises(MachineError, match=r"line 2: .*more than 100,000 hosts in all"):
        parse_slurm_topology(text)


def test_a_long_line_takes_time_in_proportion_to_its_length() -> None:
    start = time.process_time()
    with pytest.raises(MachineError, match=r"line 1: 'x+, expected keyword=value"):
        parse_slurm_topology("x" * 1_000_000)
    assert time.process_time() - start < 2.0


@given(st.text("ab\\\n", max_size=20))
def test_continued_lines_keep_the_numbers_of_those_that_follow(text: str) -> None:
    joined = _joined(text)
    assert joined.count("\n") == text.count("\n")
    assert joined.split() == re.sub(r"\\\n", " ", text).split()
