"""C and Python have the same table of collectives."""

import re
from pathlib import Path

import tuccl.runtime
from lookup_tables.collective import ASKED_ABOUT, COLLECTIVES, Collective

HEADER = (Path(tuccl.runtime.__file__).parent / "collectives.h").read_text()


def flow_of(collective: Collective) -> set[str]:
    facts = ("from_root", "to_root", "splits", "joins", "reduces")
    return {f"TUCCL_{fact.upper()}" for fact in facts if getattr(collective, fact)}


def test_the_table_in_c_has_the_same_collectives_in_the_same_order() -> None:
    table = HEADER.partition("#define TUCCL_COLLECTIVES(X)")[2].partition("\n\n")[0]
    found = re.findall(r'X\((\w+), (\w+), "(\w+)", ([\w| ]+)\)', table)
    assert [
        (name, nccl_name, value, set(flow.split(" | "))) for name, nccl_name, value, flow in found
    ] == [(each.name, each.nccl_name, each.value, flow_of(each)) for each in COLLECTIVES]
    assert f"TUCCL_ASKED_ABOUT = TUCCL_{ASKED_ABOUT[-1].name} + 1" in HEADER
