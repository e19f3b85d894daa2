"""Tables that the tests of lookup, bundle, store and plugin share."""

import random
from collections.abc import Iterable
from pathlib import Path

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.confirmation import Confirmation, Estimator, Reference
from lookup_tables.lookup import (
    MAX_SIZE_BYTES,
    PLACEMENT_TOLERANCE,
    WITH_CHUNKS,
    key_order,
    lookup,
)
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    EstimateLine,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    ScheduleConfig,
    SeenPlacement,
    Shape,
    StoredSchedule,
    SumOrder,
    Table,
    TimedSiblings,
)

FINGERPRINT = "v1-00ff"
PROVENANCE = Provenance(
    "nccl,executor", NcclVersion(2, 28, 9), "0.1.0", "two nodes", details="CUDA 12.8, NVIDIA H200"
)
CONFIRMATION = Confirmation(
    Reference.PROFILE, Estimator.MEAN_OVER_STARTS, 1.107, 1.087, 1.13, 0.99, 3
)
GOLDEN = Path(__file__).parent / "golden"
PROGRAM = bytes.fromhex((GOLDEN / "exchange.program.hex").read_text())
SCHEDULE = StoredSchedule("5a5a", "ring of 8", "<algo name='ring'/>", PROGRAM)
SHAPES = (Shape(8, 1, 8), Shape(16, 2, 8), Shape(12, 2, 0))


def make_entry(
    operation: Collective,
    min_bytes: int,
    max_bytes: int,
    builtin: BuiltinConfig | None,
    *,
    shape: Shape = SHAPES[0],
    schedule: ScheduleConfig | None = None,
) -> Entry:
    return Entry(
        key=Key(operation, min_bytes, max_bytes, shape, FINGERPRINT),
        tuned_bytes=min_bytes,
        builtin=builtin,
        schedule=schedule,
        time_us=7.25,
        builtin_time_us=None if builtin is None else 8.5,
        default_time_us=10.0,
        samples=20,
        spread=0.01,
        tuned_at="2026-01-02T03:04:05Z",
        provenance=PROVENANCE,
        confirmation=CONFIRMATION,
    )


def make_table(entries: list[Entry], **fields: object) -> Table:
    values: dict[str, object] = {
        "topology_name": "two nodes",
        "fingerprint": FINGERPRINT,
        "gpu_models": ("10de:20b2", "10de:2335"),
        "entries": tuple(sorted(entries, key=lambda entry: key_order(entry.key))),
        "profile": {"NCCL_NTHREADS": "256", "NCCL_BUFFSIZE": "8388608"},
        "schedules": (SCHEDULE,),
    }
    return Table(**(values | fields))  # type: ignore[arg-type]


ORDER_OF_8 = "(0+1+2+3+4+5+6+7)"


def invariant_table(shape: Shape = SHAPES[0]) -> Table:
    """Sums of two operations that do not move, and gathers that NCCL may do as it likes."""
    ll, ll128 = (ScheduleConfig("5a5a", each, 4, 512, 1 << 20) for each in list(NcclProtocol)[:2])
    builtin = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2)
    entries = [
        make_entry(Collective.ALL_GATHER, 1024, 4095, builtin, shape=shape),
        make_entry(Collective.ALL_REDUCE, 1, 8191, None, shape=shape, schedule=ll),
        make_entry(Collective.ALL_REDUCE, 8192, MAX_SIZE_BYTES, None, shape=shape, schedule=ll128),
        make_entry(Collective.REDUCE_SCATTER, 1, MAX_SIZE_BYTES, None, shape=shape, schedule=ll),
    ]
    reducing = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
    sums = tuple(SumOrder(shape, each, ORDER_OF_8) for each in reducing)
    return make_table(entries, gpu_models=(), sums=sums)


def takes_channels(algorithm: NcclAlgorithm, shape: Shape) -> bool:
    if algorithm in (NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.COLLNET_CHAIN):
        return False
    return algorithm is not NcclAlgorithm.NVLS or shape.nodes == 1


def random_builtin(rng: random.Random, shape: Shape) -> BuiltinConfig:
    algorithm, protocol = rng.choice(list(NcclAlgorithm)), rng.choice(list(NcclProtocol))
    nchannels = rng.randint(0, 64)
    chunk_bytes = rng.choice([0, 1 << rng.randint(12, 24)])
    return BuiltinConfig(
        algorithm,
        protocol,
        nchannels if takes_channels(algorithm, shape) else 0,
        chunk_bytes if algorithm in WITH_CHUNKS else 0,
    )


def random_table(seed: int, ranges_per_group: int = 8, shapes: tuple[Shape, ...] = SHAPES) -> Table:
    """Groups of ranges with and without gaps; built-in, schedule or both in an entry."""
    rng = random.Random(seed)
    entries = []
    for shape in shapes:
        for operation in COLLECTIVES:
            if rng.random() < 0.15:
                continue
            start = rng.choice([0, 1, 1000])
            for _ in range(ranges_per_group):
                stop = start + rng.choice([0, 1, rng.randrange(1, 2**20)])
                builtin = random_builtin(rng, shape) if rng.random() < 0.8 else None
                schedule = None
                if builtin is None or rng.random() < 0.2:
                    schedule = ScheduleConfig("5a5a", NcclProtocol.LL, 4, 512, 1 << 20)
                entries.append(
                    make_entry(operation, start, stop, builtin, shape=shape, schedule=schedule)
                )
                start = stop + rng.choice([1, 1, rng.randrange(1, 4096)])
    return make_table(entries)


def random_placements(seed: int, shapes: tuple[Shape, ...]) -> tuple[SeenPlacement, ...]:
    """Two or three placements of each shape, whose estimates meet for small messages."""
    rng = random.Random(seed)
    found = []
    for shape in sorted(shapes):
        slopes = rng.sample([1e-4, 1.3e-4, 2e-4, 5e-4], rng.choice([2, 3]))
        for number, slope in enumerate(slopes):
            lines = tuple((each, EstimateLine(12.0, slope)) for each in COLLECTIVES[:5])
            entries = []
            for operation, _ in lines:
                start = 0
                for _ in range(rng.randint(0, 4)):
                    stop = start + rng.randrange(1, 2**20)
                    builtin = random_builtin(rng, shape)
                    entries.append(make_entry(operation, start, stop, builtin, shape=shape))
                    start = stop + rng.choice([1, 4096])
            entries.sort(key=lambda entry: key_order(entry.key))
            timed = TimedSiblings(Shape(shape.ranks * 2, shape.nodes, 0), number + 1, (number % 2,))
            own = tuple(entries)
            found.append(SeenPlacement(shape, number, "gpu0 and gpu4", lines, own, timed))
    return tuple(found)


def lookup_placed(
    placements: Iterable[SeenPlacement],
    operation: Collective,
    size_bytes: int,
    shape: Shape,
    estimate_us: float,
) -> Entry | None:
    """The entry of the communicators that a call's are like, as the plugin finds it.

    None where NCCL's estimate for ring with Simple is near to none of them, or to several: the
    entry of the shape counts.
    """
    like = []
    for own in placements:
        line = dict(own.lines).get(operation)
        if own.shape == shape and line is not None:
            expected_us = line.at(size_bytes)
            if abs(estimate_us - expected_us) <= PLACEMENT_TOLERANCE * expected_us:
                like.append(own)
    if len(like) != 1:
        return None
    return lookup(like[0].entries, operation, size_bytes, shape)
