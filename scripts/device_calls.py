"""CUDA's driver and NCCL by ctypes, for ranks of scripts/check_executor.py.

NCCL is there twice: as the job sees it, with the executor in front where that is preloaded, and as
it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_NON_BLOCKING = 1
_THREAD_LOCAL = 1


class DeviceError(Exception):
    """A call into CUDA or NCCL failed."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, passed by value."""

    _fields_ = [("internal", c_char * 128)]


class Cuda:
    """A device through the driver, whose library has one name everywhere."""

    def __init__(self, device: int) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        handle, context = c_int(), c_void_p()
        self.call("cuInit", c_uint(0))
        self.call("cuDeviceGet", byref(handle), c_int(device))
        self.call("cuDevicePrimaryCtxRetain", byref(context), handle)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            DeviceError: It failed.
        """
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise DeviceError(f"{name} failed with CUDA error {result}")

    def stream(self) -> c_void_p:
        """A new one."""
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), c_uint(_NON_BLOCKING))
        return stream

    def wait(self, stream: c_void_p) -> None:
        """Until it is empty."""
        self.call("cuStreamSynchronize", stream)

    def run_as_graph(self, stream: c_void_p, put: Callable[[], None]) -> None:
        """What `put` puts on the stream, captured and launched once; waits for its end."""
        graph, executable = c_void_p(), c_void_p()
        self.call("cuStreamBeginCapture_v2", stream, c_int(_THREAD_LOCAL))
        put()
        self.call("cuStreamEndCapture", stream, byref(graph))
        self.call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
        self.call("cuGraphLaunch", executable, stream)
        self.wait(stream)
        self.call("cuGraphExecDestroy", executable)
        self.call("cuGraphDestroy", graph)


class Buffer:
    """Device memory that grows when more is asked for."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._address = c_uint64()
        self._bytes = 0

    def reserve(self, size_bytes: int) -> int:
        """Its address, with at least so many bytes behind it."""
        if size_bytes > self._bytes:
            if self._bytes:
                self._cuda.call("cuMemFree_v2", self._address)
            self._cuda.call("cuMemAlloc_v2", byref(self._address), c_size_t(size_bytes))
            self._bytes = size_bytes
        return int(self._address.value)

    def write(self, offset: int, data: Array) -> None:
        """From the host."""
        if data.nbytes:
            address = c_uint64(self._address.value + offset)
            source = data.ctypes.data_as(c_void_p)
            self._cuda.call("cuMemcpyHtoD_v2", address, source, c_size_t(data.nbytes))

    def read(self, offset: int, size_bytes: int) -> Array:
        """To the host, as bytes."""
        data = np.empty(size_bytes, np.uint8)
        if size_bytes:
            address = c_uint64(self._address.value + offset)
            target = data.ctypes.data_as(c_void_p)
            self._cuda.call("cuMemcpyDtoH_v2", target, address, c_size_t(size_bytes))
        return data

    def fill(self, byte: int, size_bytes: int, stream: c_void_p) -> None:
        """With one byte, in order with the stream's other work."""
        self._cuda.call(
            "cuMemsetD8Async", self._address, c_ubyte(byte), c_size_t(size_bytes), stream
        )


class Nccl:
    """NCCL's functions, from its library or, `as_seen`, from what goes before that in a job."""

    def __init__(self, path: str, *, as_seen: bool) -> None:
        self._library = ctypes.CDLL(path)
        self._first = ctypes.CDLL(None) if as_seen else self._library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            DeviceError: It failed.
        """
        first = self._first if hasattr(self._first, name) else self._library
        result = getattr(first, name)(*arguments)
        if result != 0:
            raise DeviceError(f"{name} failed with NCCL error {result}")

    def collective(
        self,
        operation: str,
        addresses: tuple[int, int],
        count: int,
        codes: tuple[int, int, int],
        handles: tuple[c_void_p, c_void_p],
    ) -> None:
        """Put a collective on a stream.

        Args:
            operation: As in nccl-tests.
            addresses: Of send and receive buffer.
            count: As NCCL counts.
            codes: Of type and reduction, and the root.
            handles: Communicator and stream.
        """
        send, receive = map(c_void_p, addresses)
        data_type, reduction, root = map(c_int, codes)
        tail = {
            "all_reduce": ("ncclAllReduce", data_type, reduction),
            "reduce_scatter": ("ncclReduceScatter", data_type, reduction),
            "all_gather": ("ncclAllGather", data_type),
            "alltoall": ("ncclAlltoAll", data_type),
            "broadcast": ("ncclBroadcast", data_type, root),
            "reduce": ("ncclReduce", data_type, reduction, root),
        }[operation]
        self.call(tail[0], send, receive, c_size_t(count), *tail[1:], *handles)
