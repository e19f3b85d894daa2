"""The result of the P2P benchmark: `P2pReport`, read from the JSON of `tuccl-p2p`.

    {"schema_version": 1, "driver_version": 13000, "runtime_version": 13000, "seconds": 4.0,
     "bytes": 268435456, "repetitions": 7,
     "gpus": [{"bus_id": ..., "name": ..., "error": "", ...}],
     "pairs": [{"gpus": [0, 1], "peer_access": true, "detail": ""}],
     "measurements": [{"what": "copy_engine", "gpus": [0, 1], "unit": "GB/s", "status": "ok",
                       "detail": "", "samples": [393.4, ...]}],
     "notes": []}

GPUs have CUDA's numbers and are identified by PCI address. The program reports every sample;
medians and spreads are computed here. An impossible figure (negative, faster than any link) makes
the whole report invalid.
"""

from __future__ import annotations

import json
import statistics
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from probes.inputs.document import StrictModel, read_document
from probes.inputs.messages import printable
from tuccl.errors import MachineError

SCHEMA_VERSION = 1
_MAX_GB_PER_S = 20_000.0
"""Ten times NVLink of the fastest GPU to come (Rubin: 1,800 GB/s per direction)."""
_MAX_US = 1e7
MAX_GPUS = 64
"""GPUs of one report."""
_MAX_WORDS = 1000


class P2pQuantity(StrEnum):
    """Measured quantities: bandwidths in GB/s, latencies in microseconds."""

    COPY_ENGINE = "copy_engine"
    """Copy from source to destination, without other traffic on its links."""
    COPY_ENGINE_CONCURRENT = "copy_engine_concurrent"
    """The same copy while pairs without a common GPU copy as well."""
    COPY_ENGINE_BOTH = "copy_engine_both"
    """Copies in both directions at once, the sum."""
    KERNEL_WRITE = "kernel_write"
    """Stores of a kernel on the source to the destination, 16 bytes per thread."""
    KERNEL_READ = "kernel_read"
    """Loads of a kernel on the destination from the source."""
    KERNEL_WRITE_BOTH = "kernel_write_both"
    """Stores in both directions at once, the sum."""
    WRITE_LATENCY = "write_latency"
    """A store to the destination and the system-wide fence after it."""
    FLAG_LATENCY = "flag_latency"
    """One-way latency: half of a flag's round trip to the peer."""
    HOST_TO_GPU = "host_to_gpu"
    GPU_TO_HOST = "gpu_to_host"
    HOST_TO_GPU_CONCURRENT = "host_to_gpu_concurrent"
    """The same copy while all other GPUs do it as well."""
    GPU_TO_HOST_CONCURRENT = "gpu_to_host_concurrent"
    FAN_OUT = "fan_out"
    """Copies from one GPU to all others at once, the sum."""
    FAN_IN = "fan_in"


_OF_PAIRS = frozenset(
    {
        P2pQuantity.COPY_ENGINE,
        P2pQuantity.COPY_ENGINE_CONCURRENT,
        P2pQuantity.COPY_ENGINE_BOTH,
        P2pQuantity.KERNEL_WRITE,
        P2pQuantity.KERNEL_READ,
        P2pQuantity.KERNEL_WRITE_BOTH,
        P2pQuantity.WRITE_LATENCY,
        P2pQuantity.FLAG_LATENCY,
    }
)
_LATENCIES = frozenset({P2pQuantity.WRITE_LATENCY, P2pQuantity.FLAG_LATENCY})


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value in GB/s or microseconds."""

    median: Annotated[float, Field(gt=0)]
    spread: Annotated[float, Field(ge=0)]
    """Interquartile range over median; 0 for a single sample."""

    @classmethod
    def of(cls, samples: tuple[float, ...]) -> Self:
        """Build a figure from one or more samples."""
        median = statistics.median(samples)
        if len(samples) < 2:
            return cls(median, 0.0)
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, (high - low) / median)


@dataclass(frozen=True, slots=True)
class P2pGpu:
    """A GPU as CUDA shows it."""

    bus_id: str
    """PCI address: `0000:3b:00.0`."""
    error: str
    """Reason for its exclusion; empty when it was measured."""


@dataclass(frozen=True, slots=True)
class P2pFailure:
    """A measurement without a figure."""

    quantity: P2pQuantity
    gpus: tuple[int, ...]
    is_corrupt: bool
    """Whether the received data differs from the sent data."""
    detail: str


@dataclass(frozen=True)
class P2pReport:
    """Result of one run of the benchmark; GPUs are given as indices in `gpus`."""

    gpus: tuple[P2pGpu, ...]
    samples: dict[tuple[P2pQuantity, tuple[int, ...]], tuple[float, ...]]
    failures: tuple[P2pFailure, ...]
    peer_access: dict[tuple[int, int], bool]
    """Whether a pair has peer access, by pair with the lesser index first."""
    notes: tuple[str, ...]

    @cached_property
    def corrupt_pairs(self) -> frozenset[tuple[int, int]]:
        """Pairs with any corrupt transfer, the lesser index first."""
        return frozenset(
            (min(failure.gpus), max(failure.gpus))
            for failure in self.failures
            if failure.is_corrupt and len(failure.gpus) == 2
        )

    def figure(self, quantity: P2pQuantity, *gpus: int) -> Figure | None:
        """Return a figure; None when it was not measured or the pair delivers wrong data."""
        if len(gpus) == 2 and (min(gpus), max(gpus)) in self.corrupt_pairs:
            return None
        samples = self.samples.get((quantity, gpus))
        return None if samples is None else Figure.of(samples)

    def flag_latency_us(self, a: int, b: int) -> Figure | None:
        """Return the one-way latency between two GPUs, measured once per pair."""
        return self.figure(P2pQuantity.FLAG_LATENCY, min(a, b), max(a, b))

    def has_peer_access(self, a: int, b: int) -> bool:
        """Whether two GPUs can access each other's memory."""
        return self.peer_access.get((min(a, b), max(a, b)), False)


_GpuIndex = Annotated[int, Field(ge=0, lt=MAX_GPUS)]
_Size = Annotated[int, Field(ge=0, lt=2**53)]
_Text = Annotated[str, Field(max_length=4096)]


class _GpuModel(StrictModel):
    bus_id: Annotated[
        str, Field(pattern=r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])?$", max_length=16)
    ]
    name: _Text
    sm_count: _Size
    compute_capability: _Size
    memory_bytes: _Size
    buffer_bytes: _Size
    host_buffer_bytes: _Size
    error: _Text


class _PairModel(StrictModel):
    gpus: tuple[_GpuIndex, _GpuIndex]
    peer_access: bool
    detail: _Text


class _MeasurementModel(StrictModel):
    what: P2pQuantity
    gpus: Annotated[tuple[_GpuIndex, ...], Field(min_length=1, max_length=2)]
    unit: Literal["GB/s", "us"]
    status: Literal["ok", "corrupt", "failed"]
    detail: _Text
    samples: Annotated[
        tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(max_length=1000)
    ]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (len(self.gpus) == 2) != (self.what in _OF_PAIRS) or len(set(self.gpus)) < len(
            self.gpus
        ):
            raise ValueError(f"{self.what} of GPUs {list(self.gpus)}")
        if self.unit != ("us" if self.what in _LATENCIES else "GB/s"):
            raise ValueError(f"{self.what} in {self.unit}")
        if bool(self.samples) != (self.status == "ok"):
            raise ValueError(f"{self.what} is '{self.status}' with {len(self.samples)} samples")
        limit = _MAX_US if self.unit == "us" else _MAX_GB_PER_S
        if max(self.samples, default=0.0) > limit:
            raise ValueError(f"{self.what} of {max(self.samples):g} {self.unit}: beyond any link")
        return self


class _ReportModel(StrictModel):
    schema_version: int
    driver_version: int
    runtime_version: int
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    bytes: _Size
    repetitions: _Size
    gpus: Annotated[tuple[_GpuModel, ...], Field(max_length=MAX_GPUS)]
    pairs: tuple[_PairModel, ...]
    measurements: tuple[_MeasurementModel, ...]
    notes: tuple[_Text, ...]

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        bus_ids = [gpu.bus_id for gpu in self.gpus if gpu.bus_id or not gpu.error]
        if len(set(bus_ids)) < len(bus_ids):
            raise ValueError("two GPUs of one PCI address")
        known = [(measured.what, measured.gpus) for measured in self.measurements]
        if len(set(known)) < len(known):
            raise ValueError("a measurement is given twice")
        ends = [pair.gpus for pair in self.pairs]
        if len(set(ends)) < len(ends) or any(a >= b for a, b in ends):
            raise ValueError("pairs must be given once, the lesser GPU first")
        indices = (index for gpus in [*ends, *(gpus for _, gpus in known)] for index in gpus)
        if any(index >= len(self.gpus) for index in indices):
            raise ValueError(f"a GPU beyond the {len(self.gpus)} there are")
        return self


def read_p2p_report(text: str) -> P2pReport:
    """Parse the standard output of `tuccl-p2p`.

    Raises:
        MachineError: The program could not measure, in its own words, or the report is not JSON, of
            another schema version, or has impossible figures.
    """
    with suppress(ValueError, RecursionError):
        content = json.loads(text)
        if isinstance(content, dict) and "error" in content:
            raise MachineError(f"tuccl-p2p: {printable(str(content['error']), _MAX_WORDS)}")
    remedy = "program and package must be of one installation"
    return _to_report(
        read_document(text, "report of tuccl-p2p", SCHEMA_VERSION, _ReportModel, remedy)
    )


def _to_report(model: _ReportModel) -> P2pReport:
    return P2pReport(
        gpus=tuple(P2pGpu(gpu.bus_id, printable(gpu.error, _MAX_WORDS)) for gpu in model.gpus),
        samples={(m.what, m.gpus): m.samples for m in model.measurements if m.status == "ok"},
        failures=tuple(
            P2pFailure(m.what, m.gpus, m.status == "corrupt", printable(m.detail, _MAX_WORDS))
            for m in model.measurements
            if m.status != "ok"
        ),
        peer_access={pair.gpus: pair.peer_access for pair in model.pairs},
        notes=tuple(printable(note, _MAX_WORDS) for note in model.notes),
    )
