"""Preparation of a host before workers of the `nccl` engine start: its NCCL, and GPUs they share.

Two GPUs can appear as two nodes of two ranks, and one as four nodes of any. NCCL takes faked nodes
for other hosts, whose ranks may use the same GPUs. It refuses two ranks of one node on a GPU
(`ncclInvalidUsage` in `src/init.cc`), unless it is 2.30 or newer and allowed to. Processes that
share a GPU take turns of milliseconds while their ranks wait for each other: only CUDA's MPS runs
them concurrently.
"""

from __future__ import annotations

import ctypes
import os
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from tuccl.errors import MeasurementError
from tuccl.measuring.engines.nccl_environment import check_overruling, count_gpus
from tuccl.measuring.engines.nccl_library import (
    LIBRARY_VARIABLE,
    NcclLibrary,
    find_nccl,
    version_text,
)
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.runtime import executor_path, plugin_path
from tuccl.runtime.executor_library import (
    BUNDLE_VARIABLE,
    PACKED_BUNDLE_VARIABLE,
    PRELOAD_VARIABLE,
    without_executor,
)
from tuccl.search.trials.backend import JobTable

_OLDEST_WITH_SHARING = 23003
"""NCCL 2.30.3, the first release with NCCL_MULTI_RANK_GPU_ENABLE."""
_FOR_THE_EXECUTOR = 0.25
"""Part of the multiprocessors that NCCL's channels leave to the executor's kernels."""
_MULTIPROCESSORS = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT of cuda.h."""
_MPS_ENABLED = 133
"""CU_DEVICE_ATTRIBUTE_MPS_ENABLED of cuda.h, which CUDA 13.0 has."""


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
        MeasurementError: A variable overrules every choice of the search, or there are fewer
            GPUs, or they cannot be shared.
        NcclLibraryError: No NCCL, several different ones, or one that is too old.
        HostError: This installation has no plugin.
    """
    check_overruling(environment, str(plugin_path()))
    count_gpus(gpus)
    if shared:
        require_mps(gpus)
    nccl = find_nccl(None, environment)
    within_node = sharing_variables(nccl, ranks_on_gpus, gpus) if ranks_on_gpus else {}
    return {LIBRARY_VARIABLE: str(nccl.path), **within_node}


def preloaded(*, executor: bool, environment: Mapping[str, str] = os.environ) -> str:
    """Return LD_PRELOAD, with the executor before the user's own libraries or without it.

    Raises:
        HostError: This installation has no executor.
    """
    own = without_executor(environment.get(PRELOAD_VARIABLE, ""))
    return " ".join(filter(None, [str(executor_path()) if executor else "", own]))


def job_variables(table: JobTable | None, folder: Path | None) -> dict[str, str]:
    """Return the variables with which a job loads a table, as `tuccl.env` exports them.

    Args:
        table: The table; None: the job loads none.
        folder: Where the bundle is written; None: the variables hold it, for other hosts.

    Raises:
        HostError: This installation has no plugin, or no executor for the table.
    """
    loads_executor = table is not None and table.loads_executor
    variables = {
        PRELOAD_VARIABLE: preloaded(executor=loads_executor),
        BUNDLE_VARIABLE: "",
        PACKED_BUNDLE_VARIABLE: "",
        "TUCCL_BUNDLE_CRC": "",
        "TUCCL_CHECK": "",
        "TUCCL_GUARD": "",
        "TUCCL_LEARN": "",
        "TUCCL_METRICS": "",
    }
    if table is None or table.is_bare:
        return variables
    variables |= {PLUGIN_VARIABLE: str(plugin_path()), "TUCCL_BUNDLE_CRC": table.name}
    if folder is None:
        return {**variables, PACKED_BUNDLE_VARIABLE: b64encode(table.bundle).decode()}
    path = folder / f"bundle-{table.name}.tuccl"
    path.write_bytes(table.bundle)
    return {**variables, BUNDLE_VARIABLE: str(path)}


def require_mps(gpus: int) -> None:
    """Check that MPS shares the first `gpus` GPUs, which must exist.

    Raises:
        MeasurementError: MPS does not run, or this driver cannot say so.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    for ordinal in range(gpus):
        result, enabled = _attribute(driver, _MPS_ENABLED, ordinal)
        if result != 0:
            raise MeasurementError(
                f"this driver does not say whether MPS lets ranks share GPU {ordinal} (CUDA error "
                f"{result}): use the one of CUDA 13, or as many GPUs as ranks"
            )
        if not enabled:
            raise MeasurementError(
                f"MPS does not share GPU {ordinal}, so its ranks would wait for their turns: start "
                "MPS with `nvidia-cuda-mps-control -d`, and end it afterwards with "
                "`echo quit | nvidia-cuda-mps-control`"
            )


def sharing_variables(nccl: NcclLibrary, ranks: int, gpus: int) -> dict[str, str]:
    """Return the variables that let NCCL put several ranks of a node on each GPU.

    Args:
        nccl: The NCCL of the ranks.
        ranks: Number of all ranks on this host.
        gpus: Number of GPUs that they share.

    Raises:
        MeasurementError: This release of NCCL refuses it.
    """
    if nccl.version < _OLDEST_WITH_SHARING:
        raise MeasurementError(
            f"NCCL {nccl.version_text} takes no two ranks of a node on one GPU: use "
            f"{version_text(_OLDEST_WITH_SHARING)} or newer, or nodes of at most {gpus} ranks"
        )
    result, multiprocessors = _attribute(ctypes.CDLL("libcuda.so.1"), _MULTIPROCESSORS, 0)
    if result != 0:
        raise MeasurementError(f"the driver does not report GPU 0's multiprocessors ({result=})")
    # NCCL's channels wait for each other, and hang where one finds no free multiprocessor.
    for_nccl = int(multiprocessors * (1 - _FOR_THE_EXECUTOR))
    channels = max(1, for_nccl // -(-ranks // gpus))
    return {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": str(channels)}


def _attribute(driver: ctypes.CDLL, attribute: int, ordinal: int) -> tuple[int, int]:
    """Return CUDA's result and the value of an attribute of a GPU."""
    device, value = ctypes.c_int(), ctypes.c_int()
    result: int = driver.cuDeviceGet(ctypes.byref(device), ordinal)
    result = result or driver.cuDeviceGetAttribute(
        ctypes.byref(value), ctypes.c_int(attribute), device
    )
    return result, value.value
