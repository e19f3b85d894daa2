"""Which backend measures where the command line names none: real NCCL where it can.

Only where the machine is this host, or the hosts of an MPI job. A machine from a file, a record, a
model of NCCL or nodes that are not there are asked about without running anything here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from probes.cluster.mpi import mpi_tasks
from probes.cluster.mpi_post import RANK_PAUSE_S, Post
from probes.cluster.mpi_start import join_mpi
from tuccl.console import display
from tuccl.engines.nccl_environment import NoGpuError, count_gpus
from tuccl.engines.nccl_library import NcclLibraryError, SeveralNcclsError, find_nccl
from tuccl.inputs.run_options import NCCL, SIMULATED, RunOptions
from tuccl.runtime import PluginMissingError, measure_library_path, plugin_path

_TOLD = 22
"""Tag of rank 0's word; that of `tuccl.measuring.mpi_places` is 21."""
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class DefaultBackend:
    """A backend, and why it is this one."""

    name: str
    why: str

    def sentence(self) -> str:
        """For people, with how to have another."""
        other = SIMULATED if self.name == NCCL else NCCL
        what = "a model of NCCL" if self.name == SIMULATED else "real NCCL"
        return f"backend: {self.name}, {what} ({self.why}); --backend {other} for the other"


def with_backend(given: RunOptions) -> RunOptions:
    """The options, with the backend where they leave it open and this host decides.

    Says in a line what it is. In an MPI job the first rank decides for all.
    """
    elsewhere = given.nodes != 1 and not given.fake_nodes
    said = given.backend is not None or given.model is not None
    if said or given.has_machine or elsewhere:
        return given
    tasks = mpi_tasks(os.environ)
    if tasks < 2:
        found = default_backend(least_gpus=1 if given.share_gpus else 2)
        display.say(found.sentence())
        return replace(given, backend=found.name)
    comm = join_mpi(tasks, _START_S)
    post = Post(comm)
    if comm.Get_rank():
        while (letter := post.take(_TOLD)) is None:
            time.sleep(RANK_PAUSE_S)
        return replace(given, backend=letter[1].decode())
    found = default_backend(least_gpus=1)
    display.say(found.sentence())
    for rank in range(1, comm.Get_size()):
        post.send(rank, _TOLD, found.name.encode())
    post.wait_until_sent()
    return replace(given, backend=found.name)


def default_backend(least_gpus: int, environment: Mapping[str, str] = os.environ) -> DefaultBackend:
    """Real NCCL where this process finds GPUs, an NCCL and what drives it; else the model.

    Real NCCL, too, where it finds several: which is asked before anything is probed, whereas a
    model on a machine with GPUs would be a table that nobody asked for.

    Args:
        least_gpus: That this host has to have: two, or one of an MPI job's or of all faked nodes.
        environment: Of the user's shell, which may name the NCCL.
    """
    try:
        gpus = count_gpus(least_gpus)
        plugin_path()
        measure_library_path()
        library = find_nccl(None, environment)
    except SeveralNcclsError:
        return DefaultBackend(NCCL, f"{gpus} GPUs and more than one NCCL")
    except (NoGpuError, NcclLibraryError, PluginMissingError) as error:
        return DefaultBackend(SIMULATED, str(error))
    return DefaultBackend(NCCL, f"{gpus} GPUs and NCCL {library.version_text} in {library.path}")
