"""The configurations that a search tries first: the model's opening, for every backend."""

from lookup_tables.collective import Collective
from lookup_tables.table import NcclProtocol, Shape
from probes.files.read import read_topology, shipped_machines
from tuccl.measuring.backends.backend_choice import BackendRequest, builtins_of, promising_of
from tuccl.models.figures import machine_figures
from tuccl.models.nccl_choice import nccl_choice
from tuccl.search.trials.config import Task
from tuccl.search.trials.presets import executor_families
from tuccl.search.trials.space import Space

SHAPE = Shape(4, 1, 4)


def test_the_model_opens_the_space_of_built_ins_and_says_nothing_of_schedules() -> None:
    request = BackendRequest(read_topology(shipped_machines()["h200-4gpu"]), SHAPE)
    small, large = (Task(Collective.ALL_GATHER, size, SHAPE) for size in (4096, 4 << 20))
    opening = promising_of(request, large, builtins_of(request, large))
    assert all(config in builtins_of(request, large) for config in opening)
    # Measured on four H200: LL128 on 32 channels 23.2 us, NCCL's own choice 36.3.
    assert (opening[0].algorithm, opening[0].protocol) == ("ring", "LL128")
    assert opening[0].min_nchannels == 32
    machine = machine_figures(request.topology)
    launches = [
        nccl_choice(Collective.ALL_GATHER, 4096, config, machine)
        for config in promising_of(request, small, builtins_of(request, small))
    ]
    assert [launch.protocol for launch in launches[:3]] == [NcclProtocol.LL] * 3
    assert promising_of(request, large, Space("executor", executor_families(["abc"]))) == ()
