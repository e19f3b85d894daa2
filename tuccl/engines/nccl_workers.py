"""Preparation of a host before workers of the `nccl` engine start."""

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
    """Check that this host can measure, and return the variables for every worker.

    Args:
        gpus: Number of GPUs that the workers of this host use.
        environment: The user's environment, where TUCCL_NCCL_LIBRARY may name the NCCL.
        shared: Whether several workers share a GPU.

    Raises:
        NcclEnvironmentError: A variable fixes a setting that the search varies.
        NoGpuError: There are fewer GPUs.
        NoMpsError: The GPUs cannot be shared.
        NcclLibraryError: No NCCL, several different ones, or one that is too old.
        PluginMissingError: This installation has no plugin.
    """
    check_environment(environment, str(plugin_path()))
    count_gpus(gpus)
    if shared:
        require_mps(gpus)
    return {LIBRARY_VARIABLE: str(find_nccl(None, environment).path)}
