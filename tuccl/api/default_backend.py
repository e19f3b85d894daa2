"""The backend of a run that names none: real NCCL and the executor if they can run here.

NCCL runs only where the machine is this host, or the hosts of an MPI job. For a machine from a
file, a record, a model of NCCL or nodes that do not exist, nothing runs here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lookup_tables.program_header import MOST_RANKS, executor_serves
from probes.topology.graph import Topology
from tuccl.errors import HostError, MeasurementError, SeveralNcclsError
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.models.figures import communicator_shape
from tuccl.options.machine import load_machine
from tuccl.options.run_options import NCCL, NCCL_AND_EXECUTOR, SIMULATED, RunOptions
from tuccl.runtime import has_executor, measure_library_path, plugin_path

_ALTERNATIVES = {
    SIMULATED: ("a model of NCCL", f"{NCCL} for the other"),
    NCCL: ("real NCCL", f"{SIMULATED} for the other"),
    NCCL_AND_EXECUTOR: (
        "real NCCL and the executor's schedules",
        f"{NCCL} for NCCL alone, {SIMULATED} for a model",
    ),
}
"""By backend: what it is, and the others."""


@dataclass(frozen=True, slots=True)
class DefaultBackend:
    """A backend, and the reason for it."""

    name: str
    why: str

    def sentence(self) -> str:
        """Return a sentence on the backend and on how to choose another."""
        what, alternatives = _ALTERNATIVES[self.name]
        return f"backend: {self.name}, {what} ({self.why}); --backend {alternatives}"


def with_backend(given: RunOptions, say: Callable[[str], None], least_gpus: int = 2) -> RunOptions:
    """Return the options with a backend if they leave it to this host, and say the choice.

    Args:
        given: The options.
        say: Called with a line on the choice.
        least_gpus: As for `default_backend`.
    """
    elsewhere = given.nodes != 1 and not given.fake_nodes
    said = given.backend is not None or given.model is not None
    if said or given.has_machine or elsewhere:
        return given
    found = default_backend(least_gpus, schedules=given.schedules)
    say(found.sentence())
    return replace(given, backend=found.name)


def with_served_backend(
    chosen: RunOptions, probed: Callable[[], Topology], say: Callable[[str], None]
) -> RunOptions:
    """Return the options with a backend that serves this machine: NCCL if no executor does.

    Args:
        chosen: Options whose backend was chosen here.
        probed: Probes the hosts, of which fake nodes are copies.
        say: Called with a line on the choice.

    Raises:
        UsageError: The options of the nodes are impossible.
        MachineError: The machine cannot be used.
    """
    if chosen.backend != NCCL_AND_EXECUTOR:
        return chosen
    tuned = load_machine(chosen, probed(), share_gpus=chosen.share_gpus)
    if executor_serves(communicator_shape(tuned)):
        return chosen
    say(
        f"backend: {NCCL}: the executor serves 2 to {MOST_RANKS} GPUs, on several nodes at most "
        f"{MOST_RANKS} on each"
    )
    return replace(chosen, backend=NCCL)


def default_backend(
    least_gpus: int, environment: Mapping[str, str] = os.environ, *, schedules: bool = True
) -> DefaultBackend:
    """Return real NCCL where GPUs, an NCCL and TuCCL's libraries are found, else the model.

    Where schedules are searched and this installation has the executor, it is used too.

    Several NCCLs count as real NCCL, too: the user is asked which before anything is probed, and
    does not get a modelled table on a machine with GPUs.

    Args:
        least_gpus: GPUs that this host needs: two, one for a rank of a job or for shared GPUs, none
            if other hosts have them.
        environment: Environment of the user's shell, which may name the NCCL.
        schedules: Whether schedules are searched.
    """
    name = NCCL_AND_EXECUTOR if schedules and has_executor() else NCCL
    if not least_gpus:
        return DefaultBackend(name, "on the hosts")
    try:
        gpus = count_gpus(least_gpus)
        plugin_path()
        measure_library_path()
        library = find_nccl(None, environment)
    except SeveralNcclsError:
        return DefaultBackend(name, f"{gpus} GPUs and more than one NCCL")
    except (MeasurementError, HostError) as error:
        return DefaultBackend(SIMULATED, str(error))
    why = f"{gpus} GPUs and NCCL {library.version_text} in {library.path}"
    if schedules and name == NCCL:
        why += "; no executor, which `tuccl build-executor` compiles"
    return DefaultBackend(name, why)
