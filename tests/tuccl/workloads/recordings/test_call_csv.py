"""Calls as CSV: what the columns mean, and rows that are refused by their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.workloads.recordings.written_logs import workload
from tuccl.errors import InputFileError
from tuccl.workloads.workload import Datatype, Reduction, WorkloadCall

HEAD = "operation,size_bytes,ranks\n"


def test_all_columns(tmp_path: Path) -> None:
    text = (
        "Operation, size_bytes, ranks, nodes, siblings, datatype, reduction, in_place, graph, "
        "calls, us_per_call\n"
        "all_reduce, 4M, 16, 2, 1, bfloat16, sum, yes, false, 30, 250.5\n"
        "\n"
        "AllGather, 1024, 8, , 2, , , , , , \n"
        "send, 100, 2, , , , , , , 4,\n"
    )
    found = workload(tmp_path, text, steps=10)
    assert found.calls == (
        WorkloadCall(
            operation=Collective.ALL_REDUCE, datatype=Datatype.BFLOAT16, reduction=Reduction.SUM,
            size_bytes=4 << 20, ranks=16, nodes=2, siblings=1, in_place=True, graph=False,
            calls_per_step=3.0, us_per_call=250.5,
        ),
        WorkloadCall(
            operation=Collective.ALL_GATHER, datatype=None, reduction=None,
            size_bytes=1024, ranks=8, nodes=None, siblings=2, in_place=None, graph=None,
            calls_per_step=0.1, us_per_call=None,
        ),
    )  # fmt: skip
    assert [(each.operation, each.bytes_per_step) for each in found.not_tuned] == [("send", 40)]


def test_equal_rows_add_up(tmp_path: Path) -> None:
    (only,) = workload(tmp_path, HEAD + "all_reduce,8,2\n" * 3).calls
    assert only.calls_per_step == 3


@pytest.mark.parametrize(
    "text",
    [
        "operation,size_bytes\nall_reduce,8\n",
        HEAD.replace("\n", ",color\n") + "all_reduce,8,2,red\n",
        HEAD.replace("\n", ",ranks\n") + "all_reduce,8,2,2\n",
        HEAD + "all_reduce,8\n",
        HEAD + "all_reduce,8,2\nall_reduce,eight,2\n",
        HEAD + "all_reduce,8,1\n",
        HEAD + "all_reduce,,2\n",
        HEAD.replace("\n", ",calls\n") + "all_reduce,8,2,-1\n",
        HEAD.replace("\n", ",datatype\n") + "all_reduce,8,2,int7\n",
        HEAD + 'all_reduce,"8\n',
        HEAD,
    ],
)
def test_rows_that_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputFileError):
        workload(tmp_path, text)
