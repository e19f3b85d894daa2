import pytest

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_from_parquet_bytes, table_to_parquet_bytes
from lookup_tables.table import Table
from synthesizer.formats.msccl_xml import write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.older_tables import program_of_xml
from synthesizer.programs.staged.program_check import check_programs
from tests.lookup_tables.tables import GOLDEN
from tests.synthesizer.programs.schedules import by_hand, chain, exchange, halves

BUNDLE = GOLDEN / "format-1.tuccl"
"""The table's bundle, from the release that wrote the table."""


@pytest.fixture(scope="module")
def older() -> Table:
    """Return a table of format 1; one of its three schedules is for nine ranks."""
    path = GOLDEN / "format-1.parquet"
    return table_from_parquet_bytes(path.read_bytes(), path.name, program_of_xml)


def test_a_table_from_before_programs_gives_the_bundle_that_it_gave(older: Table) -> None:
    assert bundle_bytes(older) == BUNDLE.read_bytes()
    with_program = {stored.content_hash for stored in older.schedules if stored.program}
    assert len(older.schedules) == 3
    for entry in older.entries:
        assert entry.schedule is not None
        assert (entry.schedule.schedule in with_program) == (entry.key.shape.ranks == 2)


def test_it_is_written_in_the_form_of_today(older: Table) -> None:
    def not_again(xml: str) -> bytes:
        raise AssertionError(xml)

    again = table_from_parquet_bytes(table_to_parquet_bytes(older), "t", not_again)
    assert again == older
    assert bundle_bytes(again) == BUNDLE.read_bytes()


def test_a_bundle_from_before_is_read_and_checked(older: Table) -> None:
    bundle = load_bundle(BUNDLE)
    assert bundle.schedules == older.schedules
    check_programs(bundle.schedules, BUNDLE.name)


@pytest.mark.parametrize("algorithm", [exchange(), halves(), chain()])
def test_the_xml_of_a_schedule_becomes_the_same_program(algorithm: Algorithm) -> None:
    assert program_of_xml(write_msccl_xml(algorithm)) == compile_program(algorithm)


XML = write_msccl_xml(exchange())
REFUSED = {
    "another root element": "<nothing/>",
    "not well-formed": "<algo",
    "a document type": "<!DOCTYPE algo><algo/>",
    "no text": "",
    "another count": XML.replace('ngpus="2"', 'ngpus="3"'),
    "no number": XML.replace('cnt="1"', 'cnt="x"', 1),
    "an unknown step": XML.replace('type="cpy"', 'type="mul"', 1),
    "a huge number": XML.replace('deps="2"', 'deps="99999999999"'),
    "another result": XML.replace('type="re"', 'type="cpy"'),
    "nine ranks": write_msccl_xml(by_hand(Collective.ALL_REDUCE, 1, [[] for _ in range(9)])),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_xml_that_no_executor_can_run_has_no_program(text: str) -> None:
    assert program_of_xml(text) == b""
