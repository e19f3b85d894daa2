"""Settings that a job may try: what a table may have, and its Parquet form."""

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.lookup import check_table
from lookup_tables.store import table_from_parquet_bytes, table_to_parquet_bytes
from lookup_tables.table import (
    BuiltinConfig,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    RunnersUp,
    Shape,
    Table,
)
from tests.lookup_tables.tables import make_table
from tuccl.errors import TableError

NODE = Shape(8, 1, 8)
TREE = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL128, 4, 64 << 10)
RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE)


def tried(
    *settings: BuiltinConfig,
    operation: Collective = Collective.ALL_REDUCE,
    least: int = 1024,
    most: int = 4096,
) -> RunnersUp:
    return RunnersUp(Key(operation, least, most, NODE, make_table([]).fingerprint), settings)


def table_with(*runners_up: RunnersUp) -> Table:
    return replace(make_table([]), runners_up=runners_up)


def test_the_parquet_form_has_them() -> None:
    table = table_with(
        tried(RING, operation=Collective.ALL_GATHER),
        tried(TREE, RING),
        tried(RING, least=4097, most=9000),
    )
    assert table_from_parquet_bytes(table_to_parquet_bytes(table), "t") == table


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
    ],
)
def test_what_a_job_cannot_try_is_refused(runners_up: tuple[RunnersUp, ...]) -> None:
    with pytest.raises(TableError):
        check_table(table_with(*runners_up))
