"""`NcclEngine`: one rank of NCCL on one GPU, timed and checked by libtuccl-measure.so.

Algorithm, protocol and channels of a call are an override, requested through the tuner plugin's
control block. The engine checks that NCCL loaded the plugin, asked it about the call, and that the
override was forced: otherwise the time would be that of NCCL's own choice.

TUCCL_NCCL_LIBRARY names the NCCL to load; without it the engine searches for one.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_double
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from tuccl.errors import (
    EngineBrokenError,
    EngineError,
    HostError,
    MeasurementError,
    NcclLibraryError,
)
from tuccl.measuring.engines.control_block import (
    CONTROL_VARIABLE,
    NO_OVERRIDE,
    ControlBlock,
    Question,
    override_word,
)
from tuccl.measuring.engines.measure_library import (
    GROUP_ID_BYTES,
    TEXT_BYTES,
    MeasureSession,
    NativeCall,
)
from tuccl.measuring.engines.nccl_environment import check_overruling
from tuccl.measuring.engines.nccl_library import find_nccl, version_text
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.measuring.workers.engine import Call
from tuccl.quantities import format_size
from tuccl.runtime import computation_ptx, plugin_path
from tuccl.search.trials.config import DEFAULT_ALGORITHM
from tuccl.search.trials.cost_table import CostTable

_DATA_TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
"""ncclDataType_t."""
_TAKES_NO_PATHS = 22703
"""Release that loads libnccl-tuner-PATH.so for NCCL_TUNER_PLUGIN=PATH (plugin_open.cc)."""


class NcclEngine:
    """One rank of a communicator, and of those that are split from it."""

    def __init__(self, *, controlled: bool = True) -> None:
        """Load the measuring library, without touching a GPU.

        Args:
            controlled: Whether to request overrides from TuCCL's plugin. Otherwise the environment
                names the plugin, as in a job, and only default calls can be timed.

        Raises:
            EngineError: This installation has no compiled library.
        """
        self._session = MeasureSession()
        self._refused: dict[tuple[int, ...], str] = {}
        self._tables: dict[tuple[int, ...], CostTable] = {}
        """NCCL's cost tables, by the inputs of its own choice."""
        self._nccl_version = 0
        self._device = ""
        """CUDA's version and the GPU, once it is open."""
        self._computes = False
        self._control: ControlBlock | None = ControlBlock() if controlled else None

    def make_group_id(self) -> bytes:
        """Create on rank 0, before `open`, an ncclUniqueId."""
        self._load_nccl()
        group_id = ctypes.create_string_buffer(GROUP_ID_BYTES)
        self._session.call("unique_id", group_id)
        return group_id.raw

    def prepare(self, local_rank: int) -> None:
        """Load NCCL and open the GPU, once; see `Engine.prepare`.

        Raises:
            EngineError: No GPU or no NCCL.
        """
        self._load_nccl()
        if self._device:
            return
        name = ctypes.create_string_buffer(TEXT_BYTES)
        cuda = self._session.call("take_gpu", local_rank, name, TEXT_BYTES)
        self._device = f"CUDA {cuda // 1000}.{cuda % 1000 // 10}, {name.value.decode()}"

    def open(self, rank: int, ranks: int, local_rank: int, group_id: bytes) -> str:
        """Join the communicator; see `Engine.open`.

        Raises:
            EngineError: No GPU, no NCCL, or an NCCL that did not load the plugin.
        """
        if len(group_id) != GROUP_ID_BYTES:
            raise EngineError(f"the group id has {len(group_id)} bytes instead of {GROUP_ID_BYTES}")
        self.prepare(local_rank)
        self._session.call("join", ranks, rank, group_id)
        self._verify_loaded()
        return f"NCCL {version_text(self._nccl_version)}, {_driver_version()}{self._device}"

    def split(self, colour: int, ranks: int, rank: int) -> None:
        """Join a further communicator by ncclCommSplit; see `Engine.split`."""
        self._session.call("split", colour, ranks, rank)

    @property
    def nccl_version(self) -> int | None:
        """See `Engine`."""
        return self._nccl_version or None

    def time(self, call: Call, launches: int) -> list[float]:
        """Return GPU times between two events, in us per call; see `Engine.time`."""
        native = self._prepared(call)
        times_us = (c_double * launches)()
        self._session.call("time", byref(native), launches, times_us)
        return list(times_us)

    def ran_by(self, call: Call) -> str:  # noqa: ARG002 - the executor is not in this process
        """See `Engine.ran_by`."""
        return "nccl"

    def check(self, call: Call) -> str:
        """Run the call once on known data and compare every byte; see `Engine.check`."""
        native = self._prepared(call)
        finding = ctypes.create_string_buffer(TEXT_BYTES)
        if self._session.call("check", byref(native), finding, TEXT_BYTES) == 0:
            return ""
        return f"{_describe(call)}: {finding.value.decode()}"

    def check_order(self, call: Call, local_ranks: int, shift: int) -> str:
        """Run the call once on data whose sums round; see `Engine.check_order`."""
        native = self._prepared(call)
        finding = ctypes.create_string_buffer(TEXT_BYTES)
        arguments = byref(native), local_ranks, shift, finding, TEXT_BYTES
        if self._session.call("check_order", *arguments) == 0:
            return ""
        return f"{_describe(call)} in {call.data_type}: {finding.value.decode()}"

    def cost_table(self, call: Call) -> CostTable | None:
        """Return the table that NCCL passed to the plugin for the call; see `Engine`."""
        native = self._prepared(call)
        return self._tables.get(_choice_inputs(native))

    def last_question(self) -> Question | None:
        """Return NCCL's last question to the plugin with its estimates; None without the plugin."""
        return self._control.last_question() if self._control is not None else None

    def close(self) -> None:
        """Leave all communicators."""
        self._session.close()
        if self._control is not None:
            self._control.close()
            self._control = None

    def _load_nccl(self) -> None:
        """Set the plugin's variables, then load NCCL, which reads its variables from here on."""
        if self._nccl_version:
            return
        if self._control is not None:
            self._point_to_plugin(self._control)
        try:
            path = find_nccl().path
        except NcclLibraryError as error:
            raise EngineError(str(error)) from error
        self._nccl_version = self._session.call("load", os.fsencode(path))

    def _point_to_plugin(self, control: ControlBlock) -> None:
        try:
            plugin = str(plugin_path())
            check_overruling(os.environ, plugin)
        except (HostError, MeasurementError) as error:
            raise EngineError(str(error)) from error
        os.environ[PLUGIN_VARIABLE] = plugin
        os.environ[CONTROL_VARIABLE] = control.path

    def _verify_loaded(self) -> None:
        """Raise unless NCCL loaded the plugin: it reports a failure in its log only."""
        plugin = os.environ.get(PLUGIN_VARIABLE, "")
        if self._control is not None:
            loaded = self._control.loaded_abi() != 0
        else:
            loaded = "/" not in plugin or _is_loaded(plugin)
        if not loaded:
            why = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING shows why"
            if self._nccl_version == _TAKES_NO_PATHS:
                why = "this release takes no paths: measure with another one"
            raise EngineBrokenError(
                f"NCCL {version_text(self._nccl_version)} did not load the tuner plugin "
                f"{plugin}; {why}"
            )

    def _native(self, call: Call) -> NativeCall:
        if call.data_type not in _DATA_TYPES:
            raise EngineError(f"NCCL has no data type {call.data_type}")
        return NativeCall(
            call.size_bytes,
            self._override(call),
            call.operation.code,
            _DATA_TYPES[call.data_type],
            call.in_place,
            call.use_graph,
            call.calls,
            call.communicator,
            call.in_windows,
            call.computation_us,
        )

    def _override(self, call: Call) -> int:
        if call.algorithm == DEFAULT_ALGORITHM:
            return NO_OVERRIDE
        if self._control is None or not call.operation.asks_tuner:
            raise EngineError(f"no tuner plugin can choose {_describe(call)}")
        try:
            return override_word(call.algorithm, call.protocol, call.nchannels, call.chunk_bytes)
        except ValueError as error:
            raise EngineError(f"NCCL cannot run {_describe(call)}: {error}") from error

    def _prepared(self, call: Call) -> NativeCall:
        """Return the call as the library takes it, ready to be timed.

        Ranks synchronize by NCCL calls, which are prepared before `_prepare` counts calls.

        Raises:
            EngineError: The call cannot run.
        """
        native = self._native(call)
        if call.use_graph:
            if self._control is not None:
                self._control.request_override(NO_OVERRIDE)
            self._session.call("prepare_graphs")
        if call.computation_us > 0.0:
            self._prepare_computation()
        self._prepare(call, native)
        return native

    def _prepare_computation(self) -> None:
        """Load the computation and measure its speed, once, together with the other ranks."""
        if not self._computes:
            if self._control is not None:
                self._control.request_override(NO_OVERRIDE)
            self._session.call("prepare_computation", computation_ptx())
            self._computes = True

    def _prepare(self, call: Call, native: NativeCall) -> bool:
        """Request the call's override, warm the call up, and check that the override was forced.

        Returns:
            Whether the call was new; otherwise it was prepared before.

        Raises:
            EngineError: The override was refused.
        """
        key = (
            native.operation,
            native.size_bytes,
            native.configuration,
            native.data_type,
            native.in_place,
            native.use_graph,
            native.communicator,
            native.in_windows,
        )
        if key in self._refused:
            raise EngineError(self._refused[key])
        if self._control is None:
            return self._session.call("prepare", byref(native)) != 0
        table = self._tables.get(_choice_inputs(native))
        wanted = call.algorithm, call.protocol
        if native.configuration != NO_OVERRIDE and table and wanted not in table.allowed:
            self._refuse(key, f"NCCL refused {_describe(call)}: it cannot run here")
        self._control.request_override(native.configuration)
        before = self._control.counters()
        if self._session.call("prepare", byref(native)) == 0:
            return False
        after = self._control.counters()
        if native.configuration == NO_OVERRIDE:
            if after.asked != before.asked:
                asks = after.chunks_asked != before.chunks_asked
                self._note_table(native, self._control.last_question(), asks_about_chunks=asks)
        elif after.asked == before.asked:
            self._refuse(key, f"NCCL asked no tuner about {_describe(call)}")
        elif after.forced - before.forced != after.asked - before.asked:
            self._refuse(key, f"NCCL refused {_describe(call)}: it cannot run here")
        elif call.chunk_bytes and after.chunks_changed == before.chunks_changed:
            self._refuse(key, f"{_describe(call)} has NCCL's own chunks")
        return True

    def _refuse(self, key: tuple[int, ...], reason: str) -> NoReturn:
        self._refused[key] = reason
        raise EngineError(reason)

    def _note_table(
        self, native: NativeCall, question: Question | None, *, asks_about_chunks: bool
    ) -> None:
        """Record the entries that NCCL has an estimate for: it cannot run any other."""
        if question is not None and question.table is not None:
            table = replace(question.table, asks_about_chunks=asks_about_chunks)
            self._tables[_choice_inputs(native)] = table


def _choice_inputs(native: NativeCall) -> tuple[int, ...]:
    """Return the fields of a call that NCCL's choice depends on."""
    return (
        native.operation,
        native.size_bytes,
        native.data_type,
        native.in_place,
        native.communicator,
    )


def _describe(call: Call) -> str:
    """`ring LL128 ch8 for all_reduce of 1024 bytes`."""
    words = [call.algorithm, call.protocol, f"ch{call.nchannels}" if call.nchannels else ""]
    if call.chunk_bytes:
        words.append(f"chunk{format_size(call.chunk_bytes)}")
    config = " ".join(word for word in words if word)
    return f"{config} for {call.operation} of {call.size_bytes} bytes"


def _is_loaded(library: str) -> bool:
    """Return whether a library is in this process."""
    try:
        ctypes.CDLL(library, os.RTLD_LAZY | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _driver_version() -> str:
    """Return `driver 570.86.15, ` by the version of NVIDIA's kernel module; empty without it."""
    try:
        line = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split("\n")[0]
    except OSError:
        return ""
    numbers = [word for word in line.split() if word.replace(".", "").isdigit() and "." in word]
    return f"driver {numbers[0]}, " if numbers else ""
