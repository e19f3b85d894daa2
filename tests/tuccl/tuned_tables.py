"""Tables with their reports that the tests of gains, display and shipping share."""

from collections.abc import Mapping

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Confirmation, Estimator, Reference
from lookup_tables.provenance import Provenance
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    ScheduleConfig,
    Shape,
    StoredSchedule,
    Table,
)
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.phase_plans import plan_by_name
from tuccl.reports.report import ComparisonReport, KeyReport, Report

FINGERPRINT = "ab" * 16
NVIDIA, AMD = "10de:2335", "1002:74a1"
FOUR_GPUS, TWO_HOSTS, MANY_GPUS = Shape(4, 1, 4), Shape(8, 2, 4), Shape(33, 1, 33)
SCHEDULE = StoredSchedule("5a5a", "all_reduce_two_phase", "<algo/>")
PHASED = StoredSchedule(
    "5a5a",
    "all_reduce_exchange",
    "<algo/>",
    compile_program(plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 4)),
)


def tuned(
    shape: Shape,
    backend: str = "nccl,executor",
    model: str = NVIDIA,
    profile: Mapping[str, str] | None = None,
    stored: StoredSchedule = SCHEDULE,
) -> tuple[Table, Report]:
    """Four sizes of all_reduce: a schedule with and without built-in, a built-in, and nothing.

    Stock NCCL takes 16 us for all; built-ins 8 us, schedules 4 us and 2 us, and NCCL's own choice
    under a profile 12.8 us.
    """
    profile = dict(profile or {})
    ring = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 4)
    kernel = ScheduleConfig("5a5a", NcclProtocol.LL, 8, 512, 0)
    kinds = ((1024, ring, kernel, 4.0), (2048, None, kernel, 2.0), (4096, ring, None, 8.0))
    entries = tuple(
        Entry(
            Key(Collective.ALL_REDUCE, size, 2 * size - 1, shape, FINGERPRINT), size, builtin,
            schedule, time_us, 8.0 if builtin else None, 16.0, 15, 0.01, "2026-01-02T03:04:05Z",
            Provenance(backend), confirmed(time_us, schedule, builtin),
        )
        for size, builtin, schedule, time_us in kinds
    )  # fmt: skip
    keys = [_key(size, builtin, schedule, shape) for size, builtin, schedule, _ in kinds]
    report = Report(
        version=2,
        backend=backend,
        profile=profile,
        schedules={},
        keys=[*keys, _key(8192, None, None, shape)],
    )
    table = Table("machine", FINGERPRINT, (model,), entries, profile, (stored,))
    return table, report


def confirmed(
    time_us: float, schedule: ScheduleConfig | None, builtin: BuiltinConfig | None
) -> Confirmation:
    """Three starts of the workers, within 2 % either way."""
    beside = schedule is not None and builtin is not None
    ratio = (8.0 if beside else 16.0) / time_us
    reference = Reference.BUILTIN if beside else Reference.STOCK
    low, high = 0.98 * ratio, 1.02 * ratio
    return Confirmation(reference, Estimator.MEAN_OVER_STARTS, ratio, low, high, 0.99, 3)


def _key(
    size_bytes: int, builtin: BuiltinConfig | None, schedule: ScheduleConfig | None, shape: Shape
) -> KeyReport:
    return KeyReport(
        operation=Collective.ALL_REDUCE,
        size_bytes=size_bytes,
        shape=shape,
        min_bytes=size_bytes,
        max_bytes=2 * size_bytes - 1,
        stock_us=16.0,
        profile_default_us=12.8,
        builtin=None if builtin is None else _comparison("ring LL ch4", 8.0),
        schedule=None if schedule is None else _comparison("schedule:5a5a LL", 4.0),
        rejected=[],
        configs_tried=3,
        repeats_measured=9,
        converged=True,
        why="",
    )


def _comparison(config: str, time_us: float) -> ComparisonReport:
    return ComparisonReport(
        config=config, time_us=time_us, reference_us=16.0, ratio=16.0 / time_us,
        lower_bound=1.5, samples=15, spread=0.01, upper_bound=1.1 * 16.0 / time_us,
        confidence=0.99, reference=Reference.STOCK, estimator=Estimator.MEAN_OVER_STARTS, starts=3,
    )  # fmt: skip
