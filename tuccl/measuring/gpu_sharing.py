"""GPUs that are used by a rank of each faked node, so that two GPUs can appear as two nodes of two.

NCCL refuses two ranks on one GPU of a host (`ncclInvalidUsage`, "Duplicate GPU detected", in
`src/init.cc`), and takes the faked nodes for other hosts. But two processes on a GPU take turns, of
milliseconds, while their ranks wait for each other: only CUDA's MPS lets them run side by side.
"""

from __future__ import annotations

import ctypes

from tuccl.errors import MeasurementError
from tuccl.measuring.nccl_environment import count_gpus

_MPS_ENABLED = 133
"""CU_DEVICE_ATTRIBUTE_MPS_ENABLED of cuda.h; drivers that do not know it refuse the question."""


class NoMpsError(MeasurementError):
    """Several processes are to use a GPU at a time, and nothing lets them."""


def count_shared_gpus(needed: int = 1) -> int:
    """GPUs that CUDA shows this process, and that it shares with others through MPS.

    Raises:
        NoGpuError: They are fewer than `needed`.
        NoMpsError: MPS does not run, or this driver cannot say so.
    """
    count = count_gpus(needed)
    driver = ctypes.CDLL("libcuda.so.1")
    for ordinal in range(count):
        device, shared = ctypes.c_int(), ctypes.c_int()
        result = driver.cuDeviceGet(ctypes.byref(device), ordinal)
        result = result or driver.cuDeviceGetAttribute(
            ctypes.byref(shared), ctypes.c_int(_MPS_ENABLED), device
        )
        if result != 0 or not shared.value:
            why = f"CUDA error {result}" if result else "by what the driver says"
            raise NoMpsError(
                f"GPU {ordinal} is not shared through MPS ({why}), so its ranks would wait for "
                "their turns; start it with `nvidia-cuda-mps-control -d`, and end it afterwards "
                "with `echo quit | nvidia-cuda-mps-control`"
            )
    return count
