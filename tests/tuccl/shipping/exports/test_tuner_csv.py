"""A table as the CSV of NCCL's example tuner: its rows, and what they cannot say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import jsonschema
import pytest
from json_reference import schema_of

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape, Table
from tests.tuccl.conftest import Run
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, placed_pairs
from tests.tuccl.tuned_tables import FOUR_GPUS, TWO_HOSTS, tuned
from tuccl.search.trials.baseline import parse_baseline
from tuccl.shipping.exports.export_form import Exported, ExportSource
from tuccl.shipping.exports.tuner_csv import MARK, tuner_csv

GOLDEN = Path(__file__).parent / "golden" / "nccl_tuner.conf"
TREE = BuiltinConfig(NcclAlgorithm.NVLS_TREE, NcclProtocol.SIMPLE)
PROFILE = {"NCCL_NTHREADS": "256", "NCCL_BUFFSIZE": "8388608"}


@dataclass(frozen=True)
class Rule:
    """A line as the example tuner takes it."""

    operation: str
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int
    ranks: int

    def matches(self, operation: str, size_bytes: int, shape: Shape) -> bool:
        return (
            self.operation == operation
            and self.min_bytes <= size_bytes <= self.max_bytes
            and self.nodes in {-1, shape.nodes}
            and self.ranks in {-1, shape.ranks}
        )


def rules(text: str) -> list[Rule]:
    """The rules that the tuner's parser finds: lines of 8 cells or more, no comment."""
    found = []
    for line in text.splitlines():
        assert len(line) < 255
        if line.startswith("#"):
            continue
        cells = line.split(",")
        assert len(cells) == 10
        assert cells[8:] == ["-1", "-1"]
        found.append(
            Rule(cells[0], int(cells[1]), int(cells[2]), cells[3], cells[4], *map(int, cells[5:8]))
        )
    return found


def exported(table: Table) -> Exported:
    return tuner_csv(ExportSource("here", table, None, None), Path("nccl_tuner.conf"))


def of_many_shapes(profile: Mapping[str, str]) -> str:
    near, _ = tuned(FOUR_GPUS, profile=profile)
    far, _ = tuned(TWO_HOSTS)
    gathers = tuple(
        replace(
            entry,
            key=replace(entry.key, operation=Collective.ALL_GATHER, max_bytes=1 << 40),
            builtin=TREE,
        )
        for entry in far.entries[-1:]
    )
    return exported(replace(near, entries=(*near.entries, *gathers))).text


def test_a_table_is_written_as_it_was() -> None:
    text = of_many_shapes(PROFILE)
    assert text == GOLDEN.read_text()
    assert [rule.operation for rule in rules(text)] == ["allreduce", "allreduce", "allgather"]
    assert rules(text)[-1] == Rule("allgather", 4096, 1 << 40, "nvls_tree", "simple", -1, 2, 8)
    assert text.startswith(f"{MARK}\n")


def test_the_first_match_of_each_call_is_its_entry() -> None:
    table, _ = tuned(FOUR_GPUS)
    found = rules(exported(table).text)
    for size_bytes in (1023, 1024, 2047, 2048, 4095, 4096, 8191, 8192):
        matches = [rule for rule in found if rule.matches("allreduce", size_bytes, FOUR_GPUS)]
        wanted = [
            entry.builtin
            for entry in table.entries
            if entry.key.min_bytes <= size_bytes <= entry.key.max_bytes and entry.builtin
        ]
        assert [rule.channels for rule in matches] == [builtin.nchannels for builtin in wanted]
        assert not any(rule.matches("allreduce", size_bytes, TWO_HOSTS) for rule in found)


def test_as_a_baseline_it_chooses_what_the_table_does() -> None:
    near, _ = tuned(FOUR_GPUS)
    found = parse_baseline(of_many_shapes(PROFILE), "nccl_tuner.conf")
    chosen = {
        (row.operation, row.min_bytes, row.max_bytes, row.nodes, row.ranks): BuiltinConfig(
            row.algorithm, row.protocol, row.nchannels
        )
        for row in found.rows
    }
    wanted = {
        (Collective.ALL_REDUCE, entry.key.min_bytes, entry.key.max_bytes, 1, 4): entry.builtin
        for entry in near.entries
        if entry.builtin
    }
    assert chosen == wanted | {(Collective.ALL_GATHER, 4096, 1 << 40, 2, 8): TREE}
    assert {(row.pipelined, row.registered) for row in found.rows} == {(None, None)}


@pytest.mark.long
@pytest.mark.usefixtures("tuned")
def test_a_workspace_and_its_shipped_directory_are_exported_alike(
    run_inside: Run, tmp_path: Path
) -> None:
    done = run_inside("export", "--json", "-o", "here.conf")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema_of("export"))
    text = (tmp_path / "here.conf").read_text()
    assert document["rows"] == len(rules(text)) > 0
    assert document["notes"][0].startswith("Computed by a model")
    assert run_inside("ship", "shipped").returncode == 0
    again = run_inside("export", "shipped", "-o", "here.conf")
    assert again.returncode == 0
    assert (tmp_path / "here.conf").read_text() == text
    assert f"NCCL_TUNER_CONFIG_FILE={tmp_path / 'here.conf'}" in again.stderr
    (tmp_path / "mine.conf").write_text("allreduce,0,1,ring,ll,1,1,4\n")
    for options, said in (
        (("-o", "mine.conf"), "was not written by this command"),
        (("-o", "."), "is a directory"),
        (("--to", "xml"), "--to 'xml' is unknown: use tuner-csv"),
    ):
        refused = run_inside("export", *options)
        assert refused.returncode == 2
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_entries_by_where_ranks_sit_have_no_row() -> None:
    table = Table("t", "test", (), (all_gather_entry(8),), placements=tuple(placed_pairs((8,), ())))
    found = exported(table)
    assert found.rows == 1
    why = "it is for some communicators of its shape, which no column distinguishes"
    assert f"1 entry without a row: {why}" in found.notes


def test_an_entry_with_a_size_of_chunks_has_no_row() -> None:
    entry = all_gather_entry(8)
    assert entry.builtin is not None
    larger = all_gather_entry(4, size_bytes=4 << 20)
    chunked = replace(entry, builtin=replace(entry.builtin, chunk_bytes=1 << 17))
    found = exported(Table("t", "test", (), (chunked, larger)))
    assert found.rows == 1
    assert "1 entry without a row: it has a size of chunks, which no column has" in found.notes
