"""`MeasureSession`: libtuccl-measure.so from Python, with its failures as exceptions.

`tuccl/runtime/measure/measure.h` declares the same functions for C.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_void_p
from typing import Any

from tuccl.errors import EngineBrokenError, EngineError, HostError
from tuccl.runtime import measure_library_path

GROUP_ID_BYTES = 128
TEXT_BYTES = 512
"""Size of the buffers that the library writes text into."""


class NativeCall(ctypes.Structure):
    """struct tuccl_measure_call."""

    _fields_ = (
        ("size_bytes", ctypes.c_uint64),
        ("configuration", ctypes.c_uint64),
        ("operation", ctypes.c_int32),
        ("data_type", ctypes.c_int32),
        ("in_place", ctypes.c_int32),
        ("use_graph", ctypes.c_int32),
        ("calls", ctypes.c_int32),
        ("communicator", ctypes.c_int32),
        ("in_windows", ctypes.c_int32),
        ("computation_us", c_double),
    )


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "failure": (),
    "is_broken": (),
    "load": (c_char_p,),
    "unique_id": (c_char_p,),
    "take_gpu": (c_int, c_char_p, c_size_t),
    "join": (c_int, c_int, c_char_p),
    "split": (c_int, c_int, c_int),
    "prepare_graphs": (),
    "prepare_computation": (c_char_p,),
    "prepare": (POINTER(NativeCall),),
    "time": (POINTER(NativeCall), c_int, POINTER(c_double)),
    "check": (POINTER(NativeCall), c_char_p, c_size_t),
    "check_order": (POINTER(NativeCall), c_int, c_int, c_char_p, c_size_t),
    "destroy": (),
}
"""Types of the arguments after the session."""


class MeasureSession:
    """One session of the library."""

    def __init__(self) -> None:
        """Load the library, without touching a GPU.

        Raises:
            EngineError: This installation has no compiled library.
        """
        try:
            self._library = ctypes.CDLL(str(measure_library_path()))
        except (HostError, OSError) as error:
            raise EngineError(str(error)) from error
        self._library.tuccl_measure_create.restype = c_void_p
        for name, arguments in _FUNCTIONS.items():
            getattr(self._library, f"tuccl_measure_{name}").argtypes = (c_void_p, *arguments)
        self._library.tuccl_measure_failure.restype = c_char_p
        self._library.tuccl_measure_destroy.restype = None
        self._session: int | None = self._library.tuccl_measure_create()

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of the library and return its result.

        Raises:
            EngineError: It failed.
            EngineBrokenError: It failed and left the GPU or NCCL unusable.
        """
        if self._session is None:
            raise EngineBrokenError("the engine is closed")
        result: int = getattr(self._library, f"tuccl_measure_{name}")(self._session, *arguments)
        if result < 0:
            text = self._library.tuccl_measure_failure(self._session).decode(errors="replace")
            if self._library.tuccl_measure_is_broken(self._session):
                raise EngineBrokenError(text)
            raise EngineError(text)
        return result

    def close(self) -> None:
        """Leave all communicators and free everything."""
        if self._session is not None:
            self._library.tuccl_measure_destroy(self._session)
            self._session = None
