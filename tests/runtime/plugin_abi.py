"""NCCL's side of the tuner ABI in ctypes: loads the plugin and calls it as NCCL would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_float,
    c_int,
    c_size_t,
    c_uint64,
    c_ulong,
    c_void_p,
)
from dataclasses import dataclass, field
from pathlib import Path

ALGORITHMS = 7
PROTOCOLS = 3
IGNORED = -1.0
VERSIONS = (2, 3, 4, 5, 6, 7)
ASKING_ABOUT_CHUNKS = 6
"""First version that does."""
LEVEL_WARN, LEVEL_INFO = 2, 3

_CALLBACK = CFUNCTYPE(None, c_int, c_ulong, c_char_p)
_COST = POINTER(c_float)
_INIT_OLD = CFUNCTYPE(c_int, c_size_t, c_size_t, c_void_p, POINTER(c_void_p))
_INIT_NEW = CFUNCTYPE(
    c_int, POINTER(c_void_p), c_uint64, c_size_t, c_size_t, c_void_p, POINTER(c_int), c_void_p
)
_INFO_V2 = CFUNCTYPE(
    c_int,
    c_void_p,
    c_int,
    c_size_t,
    c_int,
    c_int,
    c_int,
    POINTER(c_int),
    POINTER(c_int),
    POINTER(c_int),
)
_INFO_V3 = CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, _COST, c_int, c_int, POINTER(c_int))
_INFO_V4 = CFUNCTYPE(
    c_int, c_void_p, c_int, c_size_t, c_int, _COST, c_int, c_int, c_int, POINTER(c_int)
)
_END = CFUNCTYPE(c_int, c_void_p)
_CHUNK = CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, c_int, c_int, POINTER(c_size_t))


def _structure(version: int) -> type[ctypes.Structure]:
    info = {2: _INFO_V2, 3: _INFO_V3}.get(version, _INFO_V4)
    init = _INIT_OLD if version <= 4 else _INIT_NEW
    fields = [("name", c_char_p), ("init", init), ("get_coll_info", info), ("end", _END)]
    if version >= ASKING_ABOUT_CHUNKS:
        fields.append(("get_chunk_size", _CHUNK))
    return type(f"Tuner{version}", (ctypes.Structure,), {"_fields_": fields})


@dataclass
class Call:
    """Arguments and results of one get_coll_info call."""

    cost: list[float]
    """Cost table by rows, followed by guard values."""
    nchannels: int
    algorithm: int = -1
    protocol: int = -1


@dataclass
class Communicator:
    """One tuner context."""

    version: int
    tuner: ctypes.Structure
    context: c_void_p

    def call(
        self,
        function: int,
        size_bytes: int,
        cost: list[float],
        *,
        nchannels: int = 0,
        algorithms: int = ALGORITHMS,
        collnet: int = 1,
        nvls: int = 1,
        pipelined: int = 1,
    ) -> Call:
        """Call get_coll_info; `cost` may be longer than the table, as a guard."""
        if self.version == 2:
            chosen = [c_int(-1), c_int(-1), c_int(nchannels)]
            result = self.tuner.get_coll_info(
                self.context, function, size_bytes, collnet, nvls, 1, *map(ctypes.byref, chosen)
            )
            assert result == 0
            return Call(list(cost), chosen[2].value, chosen[0].value, chosen[1].value)
        table = (c_float * len(cost))(*cost)
        channels = c_int(nchannels)
        head = (self.context, function, size_bytes, pipelined, table, algorithms, PROTOCOLS)
        registered = () if self.version == 3 else (0,)
        assert self.tuner.get_coll_info(*head, *registered, ctypes.byref(channels)) == 0
        return Call(list(table), channels.value)

    def chunk(self, function: int, part_bytes: int, pair: tuple[int, int], own: int) -> int:
        """Ask for the size of chunks of a part, as NCCL does for each channel."""
        chunk = c_size_t(own)
        found = self.tuner.get_chunk_size(
            self.context, function, part_bytes, *pair, 1, ctypes.byref(chunk)
        )
        assert found == 0
        return chunk.value

    def end(self) -> None:
        assert self.tuner.end(self.context) == 0


@dataclass
class Plugin:
    """A loaded plugin with a logger that keeps all messages."""

    path: Path
    logger_library: Path
    """Return the compiled `native/log_to_callback.c`."""
    messages: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.library = ctypes.CDLL(str(self.path))
        self._logger = ctypes.CDLL(str(self.logger_library))
        self._callback = _CALLBACK(self._log)
        ctypes.c_void_p.in_dll(self._logger, "log_callback").value = ctypes.cast(
            self._callback, c_void_p
        ).value

    def _log(self, level: int, flags: int, text: bytes) -> None:
        self.messages.append((level if flags == 0x40 else -1, text.decode()))

    def warnings(self) -> list[str]:
        return [text for level, text in self.messages if level == LEVEL_WARN]

    def tuner(self, version: int) -> ctypes.Structure:
        return _structure(version).in_dll(self.library, f"ncclTunerPlugin_v{version}")

    def init(
        self,
        version: int,
        ranks: int,
        nodes: int,
        *,
        domain_ranks: tuple[int, int] | None = None,
        with_logger: bool = True,
    ) -> tuple[int, Communicator]:
        """Start a communicator; return NCCL's result code and the context."""
        tuner = self.tuner(version)
        context = c_void_p(0xBAD)
        logger = ctypes.cast(self._logger.log_to_callback, c_void_p) if with_logger else None
        init: Callable[..., int] = tuner.init
        if version <= 4:
            result = init(ranks, nodes, logger, ctypes.byref(context))
        else:
            domains = (c_int * 3)(nodes, *domain_ranks) if domain_ranks else None
            result = init(ctypes.byref(context), 7, ranks, nodes, logger, domains, None)
        return result, Communicator(version, tuner, context)
