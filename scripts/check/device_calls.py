"""Call CUDA's driver and NCCL by ctypes, for ranks of check_executor.py.

NCCL is loaded twice: as the job sees it, behind a preloaded executor, and directly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, byref, c_char, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from lookup_tables.collective import Collective

Array = np.ndarray[Any, np.dtype[Any]]
_NON_BLOCKING = 1
_THREAD_LOCAL = 1
_NO_TIMING = 2
_COMPARE_THREADS = 256
_MOST_BLOCKS = 264
COMPARE_PTX = """
.version 6.4
.target sm_70
.address_size 64
.visible .entry differ(.param .u64 one, .param .u64 other, .param .u64 bytes, .param .u64 found)
{
    .reg .pred %p<4>;
    .reg .b16 %h<3>;
    .reg .b32 %r<5>;
    .reg .b64 %d<12>;
    ld.param.u64 %d1, [one];
    ld.param.u64 %d2, [other];
    ld.param.u64 %d3, [bytes];
    ld.param.u64 %d4, [found];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %d5, %r1, %r2;
    cvt.u64.u32 %d6, %r3;
    add.u64 %d5, %d5, %d6;
    mul.wide.u32 %d7, %r2, %r4;
    mov.u64 %d8, 0;
NEXT:
    setp.ge.u64 %p1, %d5, %d3;
    @%p1 bra LAST;
    add.u64 %d9, %d1, %d5;
    add.u64 %d10, %d2, %d5;
    ld.global.u8 %h1, [%d9];
    ld.global.u8 %h2, [%d10];
    setp.ne.u16 %p2, %h1, %h2;
    @%p2 add.u64 %d8, %d8, 1;
    add.u64 %d5, %d5, %d7;
    bra NEXT;
LAST:
    setp.eq.u64 %p3, %d8, 0;
    @%p3 bra DONE;
    red.global.add.u64 [%d4], %d8;
DONE:
    ret;
}
"""
"""PTX of a kernel that compares two buffers: no library that is always installed has one."""


class DeviceError(Exception):
    """A call into CUDA or NCCL failed."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, passed by value."""

    _fields_ = [("internal", c_char * 128)]


class Cuda:
    """A device through the driver, whose library has the same name on every system."""

    def __init__(self, device: int) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        handle, self._context = c_int(), c_void_p()
        self._differ: c_void_p | None = None
        self.call("cuInit", c_uint(0))
        self.call("cuDeviceGet", byref(handle), c_int(device))
        self.call("cuDevicePrimaryCtxRetain", byref(self._context), handle)
        self.use()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            DeviceError: It failed.
        """
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise DeviceError(f"{name} failed with CUDA error {result}")

    def use(self) -> None:
        """Make the device current in this thread."""
        self.call("cuCtxSetCurrent", self._context)

    def stream(self) -> c_void_p:
        """Create a stream."""
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), c_uint(_NON_BLOCKING))
        return stream

    def wait(self, stream: c_void_p) -> None:
        """Wait until a stream is empty."""
        self.call("cuStreamSynchronize", stream)

    def end(self, stream: c_void_p) -> None:
        """Destroy a stream."""
        self.call("cuStreamDestroy_v2", stream)

    def after(self, before: c_void_p, then: c_void_p) -> None:
        """Make later work of stream `then` wait for the present work of stream `before`."""
        event = c_void_p()
        self.call("cuEventCreate", byref(event), c_uint(_NO_TIMING))
        self.call("cuEventRecord", event, before)
        self.call("cuStreamWaitEvent", then, event, c_uint(0))
        self.call("cuEventDestroy_v2", event)

    def used_bytes(self) -> int:
        """Memory of the device in use by all processes."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return total.value - free.value

    def captured(self, stream: c_void_p, put: Callable[[], None]) -> c_void_p:
        """An executable graph of the work that `put` adds to the stream."""
        graph, executable = c_void_p(), c_void_p()
        self.call("cuStreamBeginCapture_v2", stream, c_int(_THREAD_LOCAL))
        put()
        self.call("cuStreamEndCapture", stream, byref(graph))
        self.call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
        self.call("cuGraphDestroy", graph)
        return executable

    def launch(self, graph: c_void_p, stream: c_void_p) -> None:
        """Put an executable graph on a stream."""
        self.call("cuGraphLaunch", graph, stream)

    def end_graph(self, graph: c_void_p) -> None:
        """Destroy an executable graph that no longer runs."""
        self.call("cuGraphExecDestroy", graph)

    def run_as_graph(self, stream: c_void_p, put: Callable[[], None]) -> None:
        """Capture the work that `put` adds to the stream, launch it once, wait for its end."""
        executable = self.captured(stream, put)
        self.launch(executable, stream)
        self.wait(stream)
        self.end_graph(executable)

    def copy(self, to: int, source: int, size_bytes: int, stream: c_void_p) -> None:
        """Copy between two addresses of the device, in the stream's order."""
        words = c_uint64(to), c_uint64(source), c_size_t(size_bytes)
        self.call("cuMemcpyDtoDAsync_v2", *words, stream)

    def load_compare(self) -> None:
        """Load the kernel of `compare` while the device is idle."""
        module, self._differ = c_void_p(), c_void_p()
        self.call("cuModuleLoadData", byref(module), COMPARE_PTX.encode())
        self.call("cuModuleGetFunction", byref(self._differ), module, b"differ")

    def compare(
        self, addresses: tuple[int, int], size_bytes: int, counter: int, stream: c_void_p
    ) -> None:
        """Add the number of differing bytes to the 8-byte counter at an address."""
        if self._differ is None:
            self.load_compare()
        values = [c_uint64(value) for value in (*addresses, size_bytes, counter)]
        pointers = (c_void_p * len(values))(*(addressof(value) for value in values))
        grid = min(_MOST_BLOCKS, 1 + size_bytes // _COMPARE_THREADS), 1, 1
        block = _COMPARE_THREADS, 1, 1
        shape = (c_uint(number) for number in (*grid, *block, 0))
        self.call("cuLaunchKernel", self._differ, *shape, stream, pointers, c_void_p())


class Buffer:
    """Device memory that grows when more is asked for."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._address = c_uint64()
        self._bytes = 0

    def reserve(self, size_bytes: int) -> int:
        """Grow to at least this size; return the address."""
        if size_bytes > self._bytes:
            self.free()
            self._cuda.call("cuMemAlloc_v2", byref(self._address), c_size_t(size_bytes))
            self._bytes = size_bytes
        return int(self._address.value)

    def free(self) -> None:
        """Free the memory."""
        if self._bytes:
            self._cuda.call("cuMemFree_v2", self._address)
            self._bytes = 0

    def write(self, offset: int, data: Array) -> None:
        """Copy from the host."""
        if data.nbytes:
            address = c_uint64(self._address.value + offset)
            source = data.ctypes.data_as(c_void_p)
            self._cuda.call("cuMemcpyHtoD_v2", address, source, c_size_t(data.nbytes))
            # The copy may return before all data has arrived, and other streams do not wait for it.
            self._cuda.wait(c_void_p())

    def read(self, offset: int, size_bytes: int) -> Array:
        """Copy to the host, as bytes."""
        data = np.empty(size_bytes, np.uint8)
        if size_bytes:
            address = c_uint64(self._address.value + offset)
            target = data.ctypes.data_as(c_void_p)
            self._cuda.call("cuMemcpyDtoH_v2", target, address, c_size_t(size_bytes))
        return data

    def fill(self, byte: int, size_bytes: int, stream: c_void_p) -> None:
        """Fill with one byte, in the stream's order."""
        self._cuda.call(
            "cuMemsetD8Async", self._address, c_ubyte(byte), c_size_t(size_bytes), stream
        )


class Nccl:
    """NCCL's functions, from its library or, `as_seen`, through libraries preloaded before it."""

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
        """Submit a collective to a stream.

        Args:
            operation: As in nccl-tests.
            addresses: Of send and receive buffer.
            count: As NCCL counts.
            codes: Of type and reduction, and the root.
            handles: Communicator and stream.
        """
        send, receive = map(c_void_p, addresses)
        data_type, reduction, root = map(c_int, codes)
        called = Collective.named(operation)
        words = [data_type, *[reduction] * called.reduces, *[root] * called.has_root]
        self.call(f"nccl{called.nccl_name}", send, receive, c_size_t(count), *words, *handles)
