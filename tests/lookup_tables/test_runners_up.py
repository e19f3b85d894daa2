"""Settings that a job may try: what a table may have, and its Parquet form."""

from dataclasses import replace

import pytest

from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.lookup import check_table
from lookup_tables.store import table_from_parquet_bytes, table_to_parquet_bytes
from lookup_tables.table import (
    BuiltinConfig,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    RunnersUp,
    ScheduleConfig,
    Shape,
    Table,
)
from tests.lookup_tables.tables import SCHEDULE, make_table
from tuccl.errors import TableError

NODE = Shape(8, 1, 8)
TREE = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL128, 4, 64 << 10)
RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE)
ON_CHANNELS = ScheduleConfig(SCHEDULE.content_hash, NcclProtocol.LL, 4, 512, 65536)


def tried(
    *settings: BuiltinConfig,
    operation: Collective = Collective.ALL_REDUCE,
    least: int = 1024,
    most: int = 4096,
) -> RunnersUp:
    return RunnersUp(Key(operation, least, most, NODE, make_table([]).fingerprint), settings)


def table_with(*runners_up: RunnersUp) -> Table:
    return replace(make_table([]), runners_up=runners_up, schedules=(SCHEDULE,))


def with_schedules(count: int, operation: Collective = Collective.ALL_REDUCE) -> RunnersUp:
    schedules = (replace(ON_CHANNELS, nchannels=1 + i) for i in range(count))
    return replace(tried(operation=operation), schedules=tuple(schedules))


def test_the_parquet_form_has_them() -> None:
    table = table_with(
        tried(RING, operation=Collective.ALL_GATHER),
        tried(TREE, RING),
        replace(tried(RING, least=4097, most=9000), schedules=(ON_CHANNELS,)),
        with_schedules(3, Collective.ALLTOALL),
    )
    assert table_from_parquet_bytes(table_to_parquet_bytes(table), "t") == table
    assert read_bundle(bundle_bytes(table), "b").runners_up == table.runners_up


@pytest.mark.parametrize(
    "runners_up",
    [
        (tried(),),
        (tried(TREE, TREE),),
        (tried(*(replace(TREE, nchannels=i) for i in range(8))),),
        (tried(RING, operation=Collective.ALLTOALL),),
        (tried(replace(RING, nchannels=65)),),
        (tried(replace(RING, chunk_bytes=5000)),),
        (tried(BuiltinConfig(NcclAlgorithm.COLLNET_DIRECT, NcclProtocol.SIMPLE, 4)),),
        (tried(RING, least=5, most=4),),
        (tried(RING, least=1, most=9), tried(RING, least=9, most=10)),
        (tried(RING), tried(RING, operation=Collective.ALL_GATHER)),
        (with_schedules(4),),
        (replace(tried(), schedules=(ON_CHANNELS, ON_CHANNELS)),),
        (replace(tried(), schedules=(replace(ON_CHANNELS, schedule="6b6b"),)),),
        (replace(tried(), schedules=(replace(ON_CHANNELS, nthreads=2000),)),),
    ],
)
def test_what_a_job_cannot_try_is_refused(runners_up: tuple[RunnersUp, ...]) -> None:
    with pytest.raises(TableError):
        check_table(table_with(*runners_up))
