"""What a leader sees to before it starts workers that run the `nccl` engine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tuccl.engines.gpu_sharing import require_mps
from tuccl.engines.nccl_environment import check_environment, count_gpus
from tuccl.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
from tuccl.runtime import plugin_path


def nccl_worker_variables(
    gpus: int, environment: Mapping[str, str] = os.environ, *, shared: bool = False
) -> dict[str, str]:
    """Variables for every worker, once it is clear that this host can measure.

    Args:
        gpus: That the workers of this host take.
        environment: Of the user's shell; TUCCL_NCCL_LIBRARY may name the NCCL there.
        shared: Whether several workers use a GPU at a time.

    Raises:
        NcclEnvironmentError: A variable decides what the search is to find out.
        NoGpuError: There are fewer GPUs.
        NoMpsError: They are to be shared, and cannot be.
        NcclLibraryError: None, several different ones, or one that is too old.
        PluginMissingError: This installation has no plugin.
    """
    check_environment(environment, str(plugin_path()))
    count_gpus(gpus)
    if shared:
        require_mps(gpus)
    return {LIBRARY_VARIABLE: str(find_nccl(None, environment).path)}
