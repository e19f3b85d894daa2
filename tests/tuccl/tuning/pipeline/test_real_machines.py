"""`tuccl init` on every real machine's topology file, with one small key each."""

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.tuccl.silent_progress import silent
from tuccl.errors import MachineError
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.tuning.pipeline.preparing import Prepared
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
ALWAYS = {
    *CANNOT_SERVE,
    *("azure-ndv4-a100x8.xml", "a100x2-pcie-nvlinkbridge-dump.xml", "topo_8p_rome.xml"),
    *("topo_4p3l_2h.xml", "topo_collnet_n1.xml"),
}
"""What every run of the tests takes; the others are much like these."""
ONE_KEY = RunSettings((Collective.ALL_GATHER,), (65536,))


@pytest.mark.long
@requires_shared_data
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.name,
            marks=[] if path.name in ALWAYS else [pytest.mark.slow],
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
    result = initialize(Prepared(topology, ONE_KEY), workspace, silent)
    assert result.table.fingerprint == topology.fingerprint()
    assert result.run.bundle.stat().st_size > 0
    assert initialize(Prepared(topology, ONE_KEY), workspace, silent).already_done
