"""The backend where the command line names none: real NCCL where it can run.

It runs only where the machine is this host, or the hosts of an MPI job. For a machine from a file,
a record, a model of NCCL or nodes that do not exist, nothing runs here.
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
"""MPI tag of rank 0's decision; that of `tuccl.measuring.mpi_places` is 21."""
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class DefaultBackend:
    """A backend, and the reason for it."""

    name: str
    why: str

    def sentence(self) -> str:
        """Return a sentence on the backend and on how to choose the other."""
        alternative = SIMULATED if self.name == NCCL else NCCL
        what = "a model of NCCL" if self.name == SIMULATED else "real NCCL"
        return f"backend: {self.name}, {what} ({self.why}); --backend {alternative} for the other"


def with_backend(given: RunOptions) -> RunOptions:
    """Return the options with a backend, where they leave it open and this host decides.

    A line tells the choice. In an MPI job the first rank decides for all.
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
    """Return real NCCL where GPUs, an NCCL and TuCCL's libraries are found, else the model.

    Several NCCLs count as real NCCL, too: the user is asked which before anything is probed, and
    does not get a modelled table on a machine with GPUs.

    Args:
        least_gpus: GPUs that this host needs: two, or one for a rank of MPI or for shared GPUs.
        environment: Environment of the user's shell, which may name the NCCL.
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
