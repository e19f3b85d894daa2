"""`tuccl init` on every real machine's topology file, with one small key each."""

import re
from pathlib import Path

import pytest

from lookup_tables.table import Operation
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.tuccl.silent_progress import silent
from tuccl.errors import MachineError
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.tuning.pipeline.stages import initialize
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.runs import Workspace

FILES = sorted((SHARED_DATA / "nccl_topo").rglob("*.xml"))
CANNOT_SERVE = {
    "aws-g5-a10gx8.xml": "class",
    "azure-ncv4-a100x4-pcie.graph.xml": "graph",
    "dgx1v-v100x8.graph.xml": "graph",
    "rtx3090x8-dump.graph.xml": "graph",
}
VARIANTS = [f"topo_8p6l_{nics}nic.xml" for nics in range(1, 6)] + [
    path.name
    for path in FILES
    if re.search(r"_n?\d$", path.stem)
    and path.with_name(f"{path.stem.rpartition('_')[0]}.xml") in FILES
]
"""Files of machines that another file has without NICs, or with NICs elsewhere."""
TAKE_LONGEST = ["topo_16p1h.xml", "topo_8p_ts1.xml"]
ONE_KEY = RunSettings((Operation.ALL_GATHER,), (65536,))


@requires_shared_data
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.name,
            marks=[pytest.mark.slow] if path.name in (*VARIANTS, *TAKE_LONGEST) else [],
        )
        for path in FILES
    ],
)
def test_every_machine_of_two_gpus_or_more_is_tuned(path: Path, tmp_path: Path) -> None:
    if path.name in CANNOT_SERVE:
        with pytest.raises(MachineError, match=CANNOT_SERVE[path.name]) as caught:
            load_machine(MachineOptions(str(path)))
        assert "\n" not in str(caught.value)
        return
    topology = load_machine(MachineOptions(str(path)))
    workspace = Workspace(tmp_path / "workspace")
    result = initialize(topology, ONE_KEY, workspace, silent)
    assert result.table.fingerprint == topology.fingerprint()
    assert result.run.bundle.stat().st_size > 0
    assert initialize(topology, ONE_KEY, workspace, silent).already_done
