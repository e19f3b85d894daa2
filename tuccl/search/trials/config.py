"""`Config`, one point of the search space, and `Task`, the call that it is tried on.

`ProcessProfile` is the part of a configuration that NCCL reads once per process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tuccl.quantities import format_size
from tuccl.search.trials.placement import ANYWHERE, Placement

Settings = tuple[tuple[str, str], ...]
"""Variables of the environment with their values, sorted by name."""
DEFAULT_ALGORITHM = "default"
"""`Config.algorithm` of NCCL's own choice."""
SCHEDULE_PREFIX = "schedule:"
PHASES_PREFIX = "phases:"
"""Prefix of a schedule across hosts, which calls NCCL and so depends on the process profile."""
SCHEDULE_PREFIXES = (SCHEDULE_PREFIX, PHASES_PREFIX)
_GRAIN_BYTES = 16
"""NCCL's widest access."""
_LEAST_GRAIN_BYTES = 2
"""An element of float16, which calls are timed with."""
AXIS_VARIABLES = {
    "nthreads": "NCCL_NTHREADS",
    "buffer_bytes": "NCCL_BUFFSIZE",
    "min_nchannels": "NCCL_MIN_CTAS",
}
"""Variables that fields of `ProcessProfile` stand for."""


@dataclass(frozen=True, slots=True, order=True)
class Config:
    """A configuration: what runs and with which parameters.

    For NCCL's built-in algorithms `nthreads`, `buffer_bytes` and `min_nchannels` hold per process
    (they are read once from the environment), the rest per call; for schedules everything but
    `settings` holds per call.
    """

    algorithm: str
    """A value of `NcclAlgorithm`, `schedule:<content hash>`, `phases:<content hash>` for a schedule
    across hosts, or `default`."""
    protocol: str = ""
    """A value of `NcclProtocol`; empty for `default`."""
    nchannels: int = 0
    """0: the runtime's own count."""
    nthreads: int = 0
    """0: the runtime's own count."""
    buffer_bytes: int = 0
    """0: the runtime's own size."""
    min_nchannels: int = 0
    """Channels that a communicator opens at least; 0: NCCL's own count."""
    settings: Settings = ()
    """Further variables that NCCL reads once per process (`tuccl.search.trials.space.Knob`); for
    schedules across hosts all variables of the process profile."""
    chunk_bytes: int = 0
    """Size of the chunks into which NCCL cuts each channel's part; 0: NCCL's own size."""

    @property
    def needs_profile(self) -> bool:
        """Whether it runs only in processes with its profile.

        Schedules inside a node do not call NCCL and run in any process.
        """
        return not self.algorithm.startswith(SCHEDULE_PREFIX)

    @property
    def profile(self) -> ProcessProfile:
        """The process profile that it needs; schedules inside a node need none."""
        if self.is_schedule:
            return ProcessProfile.of(self.settings)
        return ProcessProfile(self.nthreads, self.buffer_bytes, self.min_nchannels, self.settings)

    @property
    def schedule(self) -> str:
        """Content hash of the schedule, empty for built-ins."""
        return self.algorithm.partition(":")[2] if self.is_schedule else ""

    @property
    def is_schedule(self) -> bool:
        """Whether a schedule runs instead of a built-in algorithm."""
        return self.algorithm.startswith(SCHEDULE_PREFIXES)

    @property
    def is_default(self) -> bool:
        """Whether NCCL chooses algorithm, protocol and channels itself."""
        return self.algorithm == DEFAULT_ALGORITHM

    @property
    def builtin(self) -> NcclAlgorithm:
        """The built-in algorithm.

        Raises:
            ValueError: for schedules and the default.
        """
        return NcclAlgorithm(self.algorithm)

    @property
    def nccl_protocol(self) -> NcclProtocol:
        """The protocol.

        Raises:
            ValueError: for the default.
        """
        return NcclProtocol(self.protocol)

    def describe(self) -> str:
        """For people: `ring LL128 ch16 th256 buf4M`."""
        words = [self.algorithm, self.protocol]
        if self.nchannels:
            words.append(f"ch{self.nchannels}")
        if self.chunk_bytes:
            words.append(f"chunk{format_size(self.chunk_bytes)}")
        if self.nthreads:
            words.append(f"th{self.nthreads}")
        if self.buffer_bytes:
            words.append(f"buf{format_size(self.buffer_bytes)}")
        if self.min_nchannels:
            words.append(f"min{self.min_nchannels}")
        words += [f"{name}={value}" for name, value in self.settings]
        return " ".join(filter(None, words))

    def described(self, schedules: Mapping[str, str]) -> str:
        """As `describe`, with NCCL's own choice in words and a schedule by its name.

        Args:
            schedules: Names of schedules by content hash.
        """
        name = self.algorithm
        if self.is_default:
            name = "stock NCCL" if self == STOCK else "NCCL's own choice"
        elif self.is_schedule:
            name = schedules.get(self.schedule, "schedule")
        return self.describe().replace(self.algorithm, name, 1)


@dataclass(frozen=True, slots=True, order=True)
class ProcessProfile:
    """Values of the variables that NCCL reads once per process; 0 leaves NCCL's own."""

    nthreads: int = 0
    buffer_bytes: int = 0
    min_nchannels: int = 0
    settings: Settings = ()
    """Further variables."""

    @classmethod
    def of(cls, variables: Settings) -> ProcessProfile:
        """The profile that sets these variables.

        Raises:
            ValueError: One that a field stands for is no whole number.
        """
        values = dict(variables)
        own = {field: int(values.pop(name, "0")) for field, name in AXIS_VARIABLES.items()}
        return cls(**own, settings=tuple(sorted(values.items())))

    @property
    def variables(self) -> Settings:
        """All variables that it sets, sorted by name."""
        own = ((name, getattr(self, field)) for field, name in AXIS_VARIABLES.items())
        return tuple(sorted([*((name, str(n)) for name, n in own if n), *self.settings]))

    @property
    def environment(self) -> dict[str, str]:
        """Variables to export."""
        return dict(self.variables)

    @property
    def default(self) -> Config:
        """NCCL's own choice under this profile."""
        return self.applied_to(STOCK)

    def applied_to(self, config: Config) -> Config:
        """The same per-call choice under this profile; schedules inside a node run under any."""
        if config.is_schedule:
            return replace(config, settings=self.variables) if config.needs_profile else config
        return replace(
            config,
            nthreads=self.nthreads,
            buffer_bytes=self.buffer_bytes,
            min_nchannels=self.min_nchannels,
            settings=self.settings,
        )


STOCK = Config(DEFAULT_ALGORITHM)
"""NCCL with nothing set: the reference of every speedup."""


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """An operation of one size on one communicator shape, made by all siblings of it at once."""

    operation: Collective
    size_bytes: int
    shape: Shape
    placement: Placement = ANYWHERE
    """The siblings whose times count."""

    @property
    def name(self) -> str:
        """Unique in a run of one shape: `all_reduce-1048576`."""
        return f"{self.operation.value}-{self.size_bytes}"

    @property
    def called_bytes(self) -> int:
        """Size of the calls that time it: whole elements for each rank, at most `size_bytes`.

        What cannot be divided among the ranks becomes the next smaller size whose parts are
        multiples of 16 bytes, as in nccl-tests (src/all_gather.cu), or of as much as a part has.
        """
        parts = self.operation.parts(self.shape.ranks)
        if self.size_bytes % (_LEAST_GRAIN_BYTES * parts) == 0:
            return self.size_bytes
        grains = (_GRAIN_BYTES >> halved for halved in range(_GRAIN_BYTES.bit_length()))
        whole = (self.size_bytes // (grain * parts) * grain * parts for grain in grains)
        return next(filter(None, whole), self.size_bytes)

    @property
    def full_name(self) -> str:
        """Unique in a run: `all_reduce-1048576@16x2` on 16 ranks of 2 nodes."""
        return f"{self.name}@{self.shape.ranks}x{self.shape.nodes}{self.placement.suffix}"
