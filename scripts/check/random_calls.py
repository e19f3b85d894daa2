"""Draw random collective calls for check_executor.py, with their data and tolerances.

Everything follows from a seed and a number, so that all ranks draw the same and a call that failed
can be drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from kernel_schedules import PHASED
from staged_schedules import STAGED

from lookup_tables.collective import Collective
from lookup_tables.table import NcclProtocol, ScheduleConfig
from tuccl.runtime.executor_library import Choice

K, M = 1 << 10, 1 << 20
TYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "bfloat16"),
)
"""Types in the order of ncclDataType_t."""
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
"""Reductions in the order of ncclRedOp_t."""
OPERATIONS = tuple(
    Collective.named(name)
    for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce")
)
PRIMES = (3, 7, 31, 127, 509, 2039, 8191, 32749, 131071, 524287)
GUARD_BYTES = 512
_EPSILON = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7}

INTERPRETED = "interpreted"
"""`Rule.pattern` of schedules that no kernel runs."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Wanted:
    """Ranges from which calls are drawn."""

    operations: Sequence[str] = OPERATIONS
    types: Sequence[str] = TYPES
    reductions: Sequence[str] = REDUCTIONS
    ranks: int = 2
    """Most ranks of a communicator."""
    largest_bytes: int = 4 * M
    kernels: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    """Content hashes of schedules with pattern kernels, by ranks, operation and pattern."""
    runners: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """Schedules to interpret in half of their calls, by ranks and operation."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The schedule for calls of an operation, run by a pattern's kernel or the interpreter."""

    operation: str
    pattern: str
    """Pattern of the kernel, or `interpreted`."""
    choice: Choice

    @property
    def line(self) -> str:
        """The rule as one line of text."""
        choice, config = self.choice, self.choice.config
        return (
            f"{self.operation} {choice.min_bytes} {choice.max_bytes} {self.pattern} "
            f"{config.protocol.value} {config.nchannels} {config.nthreads} {config.buffer_bytes} "
            f"({config.schedule})"
        )


def rule_by(
    words: tuple[str, str],
    schedule: str,
    sizes: tuple[int, int],
    protocol: str,
    cut: tuple[int, int] | tuple[int, int, int],
) -> Rule:
    """Make a rule.

    Args:
        words: Operation, then pattern or `interpreted`.
        schedule: Content hash.
        sizes: Smallest and largest size in bytes.
        protocol: As in `NcclProtocol`.
        cut: Channels, threads, and buffer bytes if the schedule is interpreted.
    """
    nchannels, nthreads, buffer_bytes = (*cut, 0)[:3]
    config = ScheduleConfig(schedule, NcclProtocol(protocol), nchannels, nthreads, buffer_bytes)
    return Rule(*words, Choice(*sizes, config))


@dataclass(frozen=True)
class RandomCall:
    """One call, the same on every rank."""

    number: int
    seed: int
    ranks: int
    operation: Collective
    type: str
    reduction: str
    count: int
    """Count argument of NCCL's function."""
    rule: Rule | None
    """Rule by which the executor runs the call; None: NCCL runs it."""
    send_offset: int = 0
    receive_offset: int = 0
    """Elements from the aligned start of the buffers."""
    in_place: bool = False
    in_graph: bool = False
    root: int = 0
    stream: int = 0
    whole: bool = True
    """Whether data are small integers, whose sum is exact in every order."""

    @property
    def program(self) -> str | None:
        """Schedule of an interpreted call."""
        if self.rule is None or self.rule.pattern != INTERPRETED:
            return None
        return self.rule.choice.config.schedule

    @property
    def choice(self) -> Choice | None:
        """Choice that the executor is given before the call."""
        return None if self.rule is None else self.rule.choice

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return storage(self.type).itemsize

    @property
    def send_count(self) -> int:
        """Elements of the send buffer."""
        return self.count * (self.ranks if self.operation.splits else 1)

    @property
    def receive_count(self) -> int:
        """Elements of the receive buffer."""
        return self.count * (self.ranks if self.operation.joins else 1)

    @property
    def codes(self) -> tuple[int, int, int]:
        """Type, reduction and root as NCCL's functions take them."""
        return TYPES.index(self.type), REDUCTIONS.index(self.reduction), self.root

    @property
    def buffer_bytes(self) -> int:
        """Size of a buffer for input or output, with its offset and the guard bytes behind it."""
        elements = max(self.send_count, self.receive_count) + self.send_offset + self.receive_offset
        return elements * self.element_bytes + GUARD_BYTES

    def send_at(self, rank: int) -> int:
        """Byte offset of the send buffer; in place, its offset in the receive buffer."""
        if not self.in_place:
            return self.send_offset * self.element_bytes
        inside = rank * self.count if self.operation.input_is_part else 0
        return (self.receive_offset + inside) * self.element_bytes

    def receive_at(self, rank: int) -> int:
        """Byte offset of the receive buffer."""
        inside = rank * self.count if self.operation.output_is_part and self.in_place else 0
        return (self.receive_offset + inside) * self.element_bytes

    def describe(self) -> str:
        """A short description of the call."""
        words = [
            f"call {self.number} of seed {self.seed}: {self.operation} of {self.count} {self.type}",
            self.reduction if self.operation.reduces else "",
            f"on {self.ranks} ranks",
            "in place" if self.in_place else "",
            "in a graph" if self.in_graph else "",
            f"offsets {self.send_offset}, {self.receive_offset}, root {self.root},",
            f"stream {self.stream}, rule {self.rule.line if self.rule else 'none'}",
        ]
        return " ".join(word for word in words if word)


def draw(wanted: Wanted, seed: int, number: int) -> RandomCall:
    """Draw the call with this number."""
    random = np.random.default_rng((seed, number))
    operation = Collective.named(str(random.choice(list(wanted.operations))))
    data_type = str(random.choice(list(wanted.types)))
    ranks = int(random.integers(1, wanted.ranks + 1))
    runners = wanted.runners.get(str(ranks), {}).get(operation, ())
    interpreted = bool(runners) and bool(random.random() < 0.5)
    blocks = operation.parts(ranks)
    most = wanted.largest_bytes // storage(data_type).itemsize // blocks
    count = _count(random, most)
    size_bytes = count * blocks * storage(data_type).itemsize
    in_place = bool(random.random() < 0.3) and operation.has_place
    return RandomCall(
        number=number,
        seed=seed,
        ranks=ranks,
        operation=operation,
        type=data_type,
        reduction=str(random.choice(list(wanted.reductions))),
        count=count,
        send_offset=_offset(random),
        receive_offset=_offset(random),
        in_place=in_place,
        in_graph=bool(random.random() < 0.2),
        # Programs are compiled for root 0.
        root=int(random.integers(1 if interpreted else ranks)) if operation.has_root else 0,
        stream=int(random.integers(3)),
        whole=bool(random.random() < 0.5),
        rule=_program_rule(random, operation, max(size_bytes, 1), runners)
        if interpreted
        else _rule(
            random,
            operation,
            max(size_bytes, 1),
            wanted.kernels.get(str(ranks), {}).get(operation, {}),
        ),
    )


def _count(random: np.random.Generator, most: int) -> int:
    kind = random.integers(5)
    if kind == 0:
        return int(random.choice([0, 1, 2, 3, 5, 7, 9, 15, 17]))
    size = int(math.exp(random.uniform(0, math.log(most))))
    if kind == 1:
        return min(most, int(random.choice(PRIMES)))
    if kind == 2:
        return min(most, (1 << size.bit_length()) + int(random.integers(-1, 2)))
    return size


def _offset(random: np.random.Generator) -> int:
    return 0 if random.random() < 0.5 else int(random.integers(1, 17))


def _rule(
    random: np.random.Generator, operation: str, size_bytes: int, kernels: Mapping[str, str]
) -> Rule | None:
    if any(pattern.startswith((PHASED, STAGED)) for pattern in kernels):
        return _rule_across(random, operation, size_bytes, kernels)
    small = size_bytes <= 512 * K
    patterns = ["direct"]
    if operation == "all_reduce":
        patterns = ["one_phase", "two_phase"] if small else ["two_phase"]
    pattern = str(random.choice(patterns))
    protocol = str(random.choice(["LL", "LL128"]))
    blocks = int(random.choice([1, 2, 3, 8, 16, 32, 64]))
    threads = int(random.choice([32, 96, 256, 512, 1024]))
    if pattern not in kernels:
        return None
    sizes = size_bytes, size_bytes
    return rule_by((operation, pattern), kernels[pattern], sizes, protocol, (blocks, threads))


def _rule_across(
    random: np.random.Generator, operation: str, size_bytes: int, kernels: Mapping[str, str]
) -> Rule:
    pattern = str(random.choice(sorted(kernels)))
    cut = (
        int(random.choice([1, 2, 8, 32])),
        int(random.choice([32, 96, 256, 512])),
        1 << int(random.integers(12, 23)),
    )
    protocol = str(random.choice(["LL", "LL128"]))
    return rule_by((operation, pattern), kernels[pattern], (size_bytes, size_bytes), protocol, cut)


def _program_rule(
    random: np.random.Generator, operation: str, size_bytes: int, runners: Sequence[str]
) -> Rule:
    return rule_by(
        (operation, INTERPRETED),
        str(random.choice(list(runners))),
        (size_bytes, size_bytes),
        str(random.choice(["LL", "LL128", "Simple"])),
        (
            int(random.choice([1, 1, 2, 4, 8])),
            int(random.choice([32, 96, 256, 512])),
            1 << int(random.integers(15, 23)),
        ),
    )


def storage(data_type: str) -> np.dtype[Any]:
    """The numpy type that stores a data type; bfloat16, which numpy lacks, as 16 bits."""
    return np.dtype("uint16" if data_type == "bfloat16" else data_type)


def data_of(call: RandomCall, rank: int) -> Array:
    """Data of a rank's send buffer."""
    random = np.random.default_rng((call.seed, call.number, 1 + rank))
    count = call.send_count
    if not call.operation.reduces or call.type not in _EPSILON:
        bits = random.integers(0, 256, count * call.element_bytes, dtype=np.uint8)
        return bits.view(storage(call.type))
    if call.whole:
        # Products of more than five threes are not exact in bfloat16.
        most = 3 if call.reduction == "prod" and rank >= 5 else 4
        return _from_float(random.integers(0, most, count).astype(np.float64), call.type)
    return _from_float(random.uniform(0.5, 1.5, count), call.type)


def _from_float(values: Array, data_type: str) -> Array:
    if data_type != "bfloat16":
        return values.astype(storage(data_type))
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def to_float(values: Array, data_type: str) -> Array:
    """Values as 64-bit floats, from any type."""
    if data_type != "bfloat16":
        return values.astype(np.float64)
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def tolerance(call: RandomCall) -> float:
    """Largest relative distance of results; 0 where they must be equal bit for bit.

    Summands have one sign, so each of the n roundings moves the result by at most half an epsilon.
    """
    rounds = call.operation.reduces and call.type in _EPSILON
    if not rounds or call.reduction in {"max", "min"}:
        return 0.0
    if call.whole and call.reduction in {"sum", "prod"}:
        return 0.0
    return 2 * call.ranks * _EPSILON[call.type]


def first_difference(call: RandomCall, found: Array, wanted: Array) -> str:
    """The first difference of two results beyond the tolerance; empty if there is none."""
    allowed = tolerance(call)
    if allowed == 0.0:
        # Compare bits: moved bytes may be NaN.
        bits = np.dtype(f"u{call.element_bytes}")
        wrong = found.view(bits) != wanted.view(bits)
    else:
        own, real = to_float(found, call.type), to_float(wanted, call.type)
        wrong = ~(np.abs(own - real) <= allowed * np.abs(real))
    where = np.flatnonzero(wrong)
    if where.size == 0:
        return ""
    at = int(where[0])
    return (
        f"element {at} is {_show(found[at])} instead of {_show(wanted[at])}, {where.size} of "
        f"{wrong.size} differ"
    )


def _show(value: Any) -> str:
    return f"{value} (0x{np.asarray(value).tobytes()[::-1].hex()})"
