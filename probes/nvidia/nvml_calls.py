"""`NvmlCalls`: the calls to NVML that a probe makes, and their errors.

GPUs are given by NVML's index. The library is the driver's libnvidia-ml.so.1, called through
NVIDIA's own binding (nvidia-ml-py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

import pynvml

from tuccl.errors import MachineError


class NvmlFault(StrEnum):
    """Cause of a failed call, as far as the remedies differ."""

    NO_LIBRARY = "no library"
    NO_DRIVER = "no driver"
    VERSION_MISMATCH = "version mismatch"
    NO_PERMISSION = "no permission"
    LOST = "GPU lost"
    ABSENT = "absent"
    """This GPU, driver or library does not support the query."""
    OTHER = "other"


class NvmlCallError(MachineError):
    """Raised when a call to NVML fails."""

    def __init__(self, fault: NvmlFault, words: str) -> None:
        super().__init__(words)
        self.fault = fault
        self.words = words
        """NVML's own message."""


class RemoteType(StrEnum):
    """Type of the remote device of an NVLink."""

    GPU = "gpu"
    CPU = "cpu"
    """IBM's POWER9, which NVML calls IBMNPU."""
    SWITCH = "switch"
    UNKNOWN = "unknown"


_T = TypeVar("_T")
_FAULTS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NvmlFault.NO_LIBRARY,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NvmlFault.NO_DRIVER,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NvmlFault.VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_PERMISSION: NvmlFault.NO_PERMISSION,
    pynvml.NVML_ERROR_GPU_IS_LOST: NvmlFault.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: NvmlFault.LOST,
    pynvml.NVML_ERROR_NOT_SUPPORTED: NvmlFault.ABSENT,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: NvmlFault.ABSENT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: NvmlFault.ABSENT,
}
_REMOTE_TYPES = {
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: RemoteType.GPU,
    pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: RemoteType.CPU,
    pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: RemoteType.SWITCH,
}
_SLOWDOWNS = {
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal slowdown",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal slowdown",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
}
_STATE_BY_FIELD_FROM = 90
"""Compute capability times ten from which NCCL reads a link's state as a field value (2.30
src/graph/xml.cc)."""


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert every failure to an `NvmlCallError`."""
    try:
        yield
    except pynvml.NVMLError as error:
        fault = _FAULTS.get(error.value, NvmlFault.OTHER)
        raise NvmlCallError(fault, str(error).rstrip(".")) from error
    except UnicodeDecodeError as error:
        raise NvmlCallError(NvmlFault.OTHER, "a name that is not text") from error


def _converting(calls: type[_T]) -> type[_T]:
    """Let every public method of a class convert its errors."""
    for name, method in list(vars(calls).items()):
        if not name.startswith("_"):
            setattr(calls, name, _convert_errors()(method))
    return calls


@_converting
class NvmlCalls:
    """NVML; every method may raise `NvmlCallError`."""

    def __init__(self) -> None:
        self._handles: dict[int, Any] = {}

    def start(self) -> None:
        """Load and initialise the library."""
        pynvml.nvmlInit()

    def stop(self) -> None:
        """Shut down the library."""
        pynvml.nvmlShutdown()

    def driver_version(self) -> str:
        """Version of the driver, such as `580.159.04`."""
        return str(pynvml.nvmlSystemGetDriverVersion())

    def gpu_count(self) -> int:
        """Number of GPUs that this process may see, lost GPUs included."""
        return int(pynvml.nvmlDeviceGetCount())

    def pci_address(self, gpu: int) -> str:
        """PCI address in NVML's form, `00000000:3B:00.0`."""
        return str(pynvml.nvmlDeviceGetPciInfo(self._handle(gpu)).busId)

    def name(self, gpu: int) -> str:
        """Product name, such as `NVIDIA H200`."""
        return str(pynvml.nvmlDeviceGetName(self._handle(gpu)))

    def uuid(self, gpu: int) -> str:
        """UUID, `GPU-...`."""
        return str(pynvml.nvmlDeviceGetUUID(self._handle(gpu)))

    def compute_capability(self, gpu: int) -> int:
        """Compute capability times ten."""
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(self._handle(gpu))
        return 10 * int(major) + int(minor)

    def memory_bytes(self, gpu: int) -> int:
        """Size of the memory."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle(gpu)).total)

    def mig_mode(self, gpu: int) -> tuple[bool, bool]:
        """Whether MIG is on now, and whether it is on after the next reset."""
        current, pending = pynvml.nvmlDeviceGetMigMode(self._handle(gpu))
        return bool(current), bool(pending)

    def pcie_maximum(self, gpu: int) -> tuple[int, int]:
        """The highest PCIe generation and width of this GPU in this machine."""
        handle = self._handle(gpu)
        generation = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        return int(generation), int(pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle))

    def may_access(self, gpu: int, peer: int) -> bool:
        """Whether a GPU may write to the peer's memory directly."""
        pair = self._handle(gpu), self._handle(peer)
        status = pynvml.nvmlDeviceGetP2PStatus(*pair, pynvml.NVML_P2P_CAPS_INDEX_WRITE)
        return bool(status == pynvml.NVML_P2P_STATUS_OK)

    def link_carries_p2p(self, gpu: int, link: int) -> bool:
        """Whether the NVLink supports P2P traffic between GPUs."""
        capability = pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED
        return bool(pynvml.nvmlDeviceGetNvLinkCapability(self._handle(gpu), link, capability))

    def link_is_up(self, gpu: int, link: int) -> bool:
        """Whether the NVLink is trained."""
        if self.compute_capability(gpu) >= _STATE_BY_FIELD_FROM:
            states = self._fields(gpu, (pynvml.NVML_FI_DEV_NVLINK_GET_STATE, link))
            if states is not None:
                return states == (1,)
        return bool(pynvml.nvmlDeviceGetNvLinkState(self._handle(gpu), link))

    def link_remote_type(self, gpu: int, link: int) -> RemoteType:
        """Type of the remote device."""
        code = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(self._handle(gpu), link)
        return _REMOTE_TYPES.get(code, RemoteType.UNKNOWN)

    def link_remote_address(self, gpu: int, link: int) -> str:
        """PCI address of the remote device in NVML's form, `FFFFFFFF:FF:FF.0` when hidden."""
        return str(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(self._handle(gpu), link).busId)

    def c2c_links(self, gpu: int) -> tuple[tuple[bool, int], ...]:
        """For each C2C link, whether it is up and its bandwidth in MB/s."""
        fields = pynvml.NVML_FI_DEV_C2C_LINK_GET_STATUS, pynvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW
        count = self._fields(gpu, (pynvml.NVML_FI_DEV_C2C_LINK_COUNT, 0)) or (0,)
        links = []
        for link in range(count[0]):
            status, mb_per_s = self._fields(gpu, *((field, link) for field in fields)) or (0, 0)
            links.append((status == 1, mb_per_s))
        return tuple(links)

    def domain(self, gpu: int) -> str:
        """Name of the NVLink domain over hosts that the GPU has joined; empty: of none.

        NCCL identifies a domain by the cluster's UUID and the clique (2.30 src/mnnvl.cc).
        """
        fabric = pynvml.c_nvmlGpuFabricInfoV_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(self._handle(gpu), ctypes.byref(fabric))
        cluster = bytes(fabric.clusterUuid)
        is_joined = fabric.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED and fabric.status == 0
        return f"{cluster.hex()}/{fabric.cliqueId}" if is_joined and any(cluster) else ""

    def power_limit_w(self, gpu: int) -> int:
        """Power limit that is enforced, in whole watts."""
        return round(int(pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle(gpu))) / 1000)

    def max_clocks_mhz(self, gpu: int) -> tuple[int, int]:
        """Highest clocks of the multiprocessors and of the memory."""
        handle = self._handle(gpu)
        sm, memory = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
        found = (pynvml.nvmlDeviceGetMaxClockInfo(handle, kind) for kind in (sm, memory))
        return next(found), next(found)

    def application_clocks_mhz(self, gpu: int) -> tuple[int, int]:
        """Clocks of the multiprocessors and of the memory that were set for applications."""
        handle = self._handle(gpu)
        sm, memory = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
        found = (pynvml.nvmlDeviceGetApplicationsClock(handle, kind) for kind in (sm, memory))
        return next(found), next(found)

    def ecc_enabled(self, gpu: int) -> bool:
        """Whether ECC is on now."""
        return bool(pynvml.nvmlDeviceGetEccMode(self._handle(gpu))[0])

    def uncorrected_errors(self, gpu: int) -> int:
        """Uncorrected ECC errors over the life of the GPU."""
        kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC
        return int(pynvml.nvmlDeviceGetTotalEccErrors(self._handle(gpu), kind, counter))

    def row_remapping(self, gpu: int) -> tuple[bool, bool]:
        """Whether rows of the memory await remapping at the next reset, and whether one failed."""
        _, _, pending, failed = pynvml.nvmlDeviceGetRemappedRows(self._handle(gpu))
        return bool(pending), bool(failed)

    def slowdowns(self, gpu: int) -> tuple[str, ...]:
        """Reasons why the clocks are held down now, without those of an idle or a busy GPU."""
        bits = int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle(gpu)))
        return tuple(reason for bit, reason in _SLOWDOWNS.items() if bits & bit)

    def processes(self, gpu: int) -> int:
        """Number of processes that compute on the GPU, as far as this process may see them."""
        return len(pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle(gpu)))

    def takes_one_process(self, gpu: int) -> bool:
        """Whether its compute mode lets one process at a time use the GPU."""
        mode = pynvml.nvmlDeviceGetComputeMode(self._handle(gpu))
        return bool(mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)

    def _handle(self, gpu: int) -> Any:
        if gpu not in self._handles:
            self._handles[gpu] = pynvml.nvmlDeviceGetHandleByIndex(gpu)
        return self._handles[gpu]

    def _fields(self, gpu: int, *fields: tuple[int, int]) -> tuple[int, ...] | None:
        """Unsigned values of fields (id, scope); None if the GPU or driver lacks a field."""
        try:
            values = pynvml.nvmlDeviceGetFieldValues(self._handle(gpu), list(fields))
        except pynvml.NVMLError as error:
            if _FAULTS.get(error.value) is NvmlFault.ABSENT:
                return None
            raise
        if any(value.nvmlReturn != pynvml.NVML_SUCCESS for value in values):
            return None
        return tuple(int(value.value.uiVal) for value in values)
