"""Preparation of a host before workers of the `nccl` engine start."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tuccl.measuring.engines.gpu_sharing import require_mps, sharing_variables
from tuccl.measuring.engines.nccl_environment import check_environment, count_gpus
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
from tuccl.runtime import plugin_path


def nccl_worker_variables(
    gpus: int,
    environment: Mapping[str, str] = os.environ,
    *,
    shared: bool = False,
    ranks_on_gpus: int = 0,
) -> dict[str, str]:
    """Check that this host can measure, and return the variables for every worker.

    Args:
        gpus: Number of GPUs that the workers of this host use.
        environment: The user's environment, where TUCCL_NCCL_LIBRARY may name the NCCL.
        shared: Whether several workers share a GPU.
        ranks_on_gpus: Number of workers, where some of one node share a GPU; 0: none do.

    Raises:
        MeasurementError: A variable fixes a setting that the search varies.
        MeasurementError: There are fewer GPUs.
        MeasurementError: The GPUs cannot be shared.
        MeasurementError: They cannot be shared within a node.
        NcclLibraryError: No NCCL, several different ones, or one that is too old.
        HostError: This installation has no plugin.
    """
    check_environment(environment, str(plugin_path()))
    count_gpus(gpus)
    if shared:
        require_mps(gpus)
    nccl = find_nccl(None, environment)
    within_node = sharing_variables(nccl, ranks_on_gpus, gpus) if ranks_on_gpus else {}
    return {LIBRARY_VARIABLE: str(nccl.path), **within_node}
