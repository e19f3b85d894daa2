"""Sharing of GPUs by ranks of several faked nodes: two GPUs can appear as two nodes of two.

NCCL refuses two ranks on one GPU of a host (`ncclInvalidUsage`, "Duplicate GPU detected", in
`src/init.cc`), but takes faked nodes for other hosts. Processes that share a GPU take turns of
milliseconds while their ranks wait for each other: only CUDA's MPS runs them concurrently.
"""

from __future__ import annotations

import ctypes

from tuccl.errors import MeasurementError

_MPS_ENABLED = 133
"""CU_DEVICE_ATTRIBUTE_MPS_ENABLED of cuda.h, which CUDA 13.0 has."""


class NoMpsError(MeasurementError):
    """Raised when several processes are to use a GPU at once and MPS does not let them."""


def require_mps(gpus: int) -> None:
    """Check that MPS shares the first `gpus` GPUs, which must exist.

    Raises:
        NoMpsError: MPS does not run, or this driver cannot say so.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    for ordinal in range(gpus):
        device, enabled = ctypes.c_int(), ctypes.c_int()
        result = driver.cuDeviceGet(ctypes.byref(device), ordinal)
        result = result or driver.cuDeviceGetAttribute(
            ctypes.byref(enabled), ctypes.c_int(_MPS_ENABLED), device
        )
        if result != 0:
            raise NoMpsError(
                f"this driver does not say whether MPS lets ranks share GPU {ordinal} (CUDA error "
                f"{result}): use the one of CUDA 13, or as many GPUs as ranks"
            )
        if not enabled.value:
            raise NoMpsError(
                f"MPS does not share GPU {ordinal}, so its ranks would wait for their turns: start "
                "MPS with `nvidia-cuda-mps-control -d`, and end it afterwards with "
                "`echo quit | nvidia-cuda-mps-control`"
            )
