"""Writes the bundles that the native tests start from."""

from dataclasses import replace
from pathlib import Path

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.host_devices import BundleFacts, HostDevice, HostDeviceKind
from lookup_tables.collective import Collective
from lookup_tables.lookup import MAX_SIZE_BYTES
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    RunnersUp,
    ScheduleConfig,
    Setting,
    Shape,
    Table,
)
from tests.lookup_tables.tables import (
    SCHEDULE,
    invariant_table,
    make_table,
    random_placements,
    random_table,
)

NATIVE_SHAPES = (Shape(8, 1, 8), Shape(16, 2, 8))
TREE = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL128, 4, 64 << 10)
RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE)
ON_CHANNELS = ScheduleConfig(SCHEDULE.content_hash, NcclProtocol.LL, 4, 512, 65536)

NATIVE_FACTS = BundleFacts(
    (
        (HostDevice(HostDeviceKind.GPU, "10de:2335", count=8),),
        (
            HostDevice(HostDeviceKind.GPU, "10de:2335", count=4),
            HostDevice(HostDeviceKind.NIC, "15b3:1021", 400_000, name="mlx5_0", gpus_at_switch=2),
        ),
    ),
    {"NCCL_IB_TC": "106"},
)


def native_bundle(seed: int) -> bytes:
    """Return the bundle of `native_table`, with every section but that of sums."""
    return bundle_bytes(native_table(seed), NATIVE_FACTS)


def native_table(seed: int) -> Table:
    """Return a table, small so that mutations hit relevant bytes, and without GPU models.

    The last range of each group goes on without end, so that large sizes find something too.
    """
    entries = random_table(seed, 4, NATIVE_SHAPES).entries
    following = (*entries[1:], None)
    tried = Key(Collective.ALL_REDUCE, 1024, 4096, NATIVE_SHAPES[0], entries[0].key.fingerprint)
    return make_table(
        [
            entry if after and same_group(entry, after) else endless(entry)
            for entry, after in zip(entries, following, strict=True)
        ],
        gpu_models=(),
        placements=random_placements(seed, NATIVE_SHAPES),
        profile={"NCCL_BUFFSIZE": "8388608", "NCCL_MIN_CTAS": "32"},
        settings=(Setting(NATIVE_SHAPES[0], "NCCL_MIN_CTAS"),),
        runners_up=(RunnersUp(tried, (TREE, RING), (ON_CHANNELS,)),),
    )


def same_group(first: Entry, second: Entry) -> bool:
    return (first.key.shape, first.key.operation) == (second.key.shape, second.key.operation)


def endless(entry: Entry) -> Entry:
    return replace(entry, key=replace(entry.key, max_bytes=MAX_SIZE_BYTES))


def write_bundles(folder: Path) -> tuple[Path, Path]:
    """Write a good bundle and a damaged one; beside them one whose sums do not move."""
    (folder / "invariant.tuccl").write_bytes(bundle_bytes(invariant_table(), NATIVE_FACTS))
    data = native_bundle(1)
    good, damaged = folder / "good.tuccl", folder / "damaged.tuccl"
    good.write_bytes(data)
    damaged.write_bytes(data[:-1])
    return good, damaged
