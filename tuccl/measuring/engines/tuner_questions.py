"""Asks a tuner's library, in a process of its own: questions on standard input, answers as JSON.

    python -m tuccl.measuring.engines.tuner_questions LIBRARY < QUESTIONS

A question is [function, bytes, ranks, nodes, algorithms]. Its answers, for buffers that are not
registered and those that are, are [algorithm, protocol, channels], or null if the tuner leaves the
call to NCCL. The declarations are those of `tuccl/runtime/tuner_abi.h`.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable

_ALGORITHMS, _PROTOCOLS = 7, 3
_SIMPLE = 2
_WITHOUT_LL = (2, 3, 4, 5, 6)
"""CollNet, NVLS and PAT, which have Simple alone."""
_COST = 1e6
"""Estimate of every pair in us, above all that a tuner writes to choose one."""
_CANNOT_RUN = -1.0
_CONSTANTS = 4096
"""Doubles for NCCL's constants, of which ABI 5 has 144; a tuner may write some."""
_COMMUNICATOR = 1

_Logger = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p
)
"""Its variable arguments are not looked at."""
_Table = ctypes.c_float * (_ALGORITHMS * _PROTOCOLS)
_Context = ctypes.c_void_p
_OLD_INIT = (ctypes.c_size_t, ctypes.c_size_t, _Logger, ctypes.POINTER(_Context))
_NEW_INIT = (
    ctypes.POINTER(_Context),
    ctypes.c_uint64,
    ctypes.c_size_t,
    ctypes.c_size_t,
    _Logger,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_CALL = (_Context, ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(_Table))
_SIZES = (ctypes.c_int, ctypes.c_int)
_NEWEST, _OLDEST, _WITH_DOMAINS, _WITH_REGISTRATION = 7, 3, 5, 4


def _abi(version: int) -> type[ctypes.Structure]:
    """Return the start of the structure of an ABI, which is all that is used here."""
    init = _NEW_INIT if version >= _WITH_DOMAINS else _OLD_INIT
    registered = (ctypes.c_int,) if version >= _WITH_REGISTRATION else ()
    ask = (*_CALL, *_SIZES, *registered, ctypes.POINTER(ctypes.c_int))
    fields = [
        ("name", ctypes.c_char_p),
        ("init", ctypes.CFUNCTYPE(ctypes.c_int, *init)),
        ("ask", ctypes.CFUNCTYPE(ctypes.c_int, *ask)),
    ]
    return type(f"Tuner{version}", (ctypes.Structure,), {"_fields_": fields})


class _Library:
    """A tuner's library, with a context for each communicator."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        for version in range(_NEWEST, _OLDEST - 1, -1):
            try:
                self._tuner = _abi(version).in_dll(library, f"ncclTunerPlugin_v{version}")
            except ValueError:
                continue
            self._version = version
            break
        else:
            raise OSError(f"no ncclTunerPlugin_v{_OLDEST} to v{_NEWEST} in it")
        self._logger = _Logger(lambda *_: None)
        self._contexts: dict[tuple[int, int], ctypes.c_void_p] = {}
        self._constants = (ctypes.c_double * _CONSTANTS)()
        self._domains: list[object] = []

    def ask(
        self, function: int, size_bytes: int, ranks: int, nodes: int, algorithms: list[int]
    ) -> list[list[int] | None]:
        """Return the choices for buffers that are not registered, and for those that are."""
        context = self._context(ranks, nodes)
        if self._version < _WITH_REGISTRATION:
            return [self._choice(context, function, size_bytes, algorithms, ())] * 2
        return [
            self._choice(context, function, size_bytes, algorithms, (registered,))
            for registered in (0, 1)
        ]

    def _context(self, ranks: int, nodes: int) -> ctypes.c_void_p:
        if (ranks, nodes) in self._contexts:
            return self._contexts[ranks, nodes]
        context = self._contexts[ranks, nodes] = ctypes.c_void_p()
        init: Callable[..., int] = self._tuner.init
        if self._version < _WITH_DOMAINS:
            result = init(ranks, nodes, self._logger, ctypes.byref(context))
        else:
            domains = (ctypes.c_int * 3)(nodes, ranks // nodes, -(-ranks // nodes))
            self._domains.append(domains)
            given = (ctypes.addressof(domains), ctypes.addressof(self._constants))
            result = init(ctypes.byref(context), _COMMUNICATOR, ranks, nodes, self._logger, *given)
        if result:
            raise OSError(f"its init returned {result} for {ranks} ranks on {nodes} node(s)")
        return context

    def _choice(
        self,
        context: ctypes.c_void_p,
        function: int,
        size_bytes: int,
        algorithms: list[int],
        registered: tuple[int, ...],
    ) -> list[int] | None:
        before = [
            _COST
            if at // _PROTOCOLS in algorithms
            and (at % _PROTOCOLS == _SIMPLE or at // _PROTOCOLS not in _WITHOUT_LL)
            else _CANNOT_RUN
            for at in range(_ALGORITHMS * _PROTOCOLS)
        ]
        table, channels = _Table(*before), ctypes.c_int(0)
        sizes = (_ALGORITHMS, _PROTOCOLS, *registered, ctypes.byref(channels))
        ask: Callable[..., int] = self._tuner.ask
        result = ask(context, function, size_bytes, 1, ctypes.byref(table), *sizes)
        if result:  # NCCL would fail the call.
            raise OSError(f"its getCollInfo returned {result} for {size_bytes} bytes")
        possible = [at for at, cost in enumerate(before) if cost > 0 and 0 <= table[at] < cost]
        best = min(possible, key=lambda at: (table[at], at), default=None)
        return None if best is None else [*divmod(best, _PROTOCOLS), channels.value]


def main() -> None:
    """Answer the questions of standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What the library prints is no answer.
    try:
        library = _Library(sys.argv[1])
        found = [library.ask(*question) for question in json.load(sys.stdin)]
    except OSError as error:
        sys.exit(str(error))
    with answers:
        json.dump(found, answers)
    sys.stdout.flush()
    os._exit(0)  # Its threads and destructors are not waited for.


if __name__ == "__main__":
    main()
