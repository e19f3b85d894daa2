import pytest

from lookup_tables.table import Table
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.evidence import Evidence, evidence_of

EMPTY = Table("machine", "0" * 16, (), ())


@pytest.mark.parametrize(
    ("backend", "entries_of", "evidence"),
    [
        ("simulated", None, Evidence.MODELLED),
        ("replay", "simulated", Evidence.MODELLED),
        ("replay", "sockets", Evidence.STAND_IN),
        ("sockets", None, Evidence.STAND_IN),
        ("nccl", None, Evidence.MEASURED),
        ("replay", "nccl,executor", Evidence.MEASURED),
    ],
)
def test_a_table_is_what_made_its_entries_or_its_backend(
    backend: str, entries_of: str | None, evidence: Evidence
) -> None:
    table = EMPTY if entries_of is None else tuned(FOUR_GPUS, entries_of)[0]
    assert evidence_of(table, backend) is evidence


def test_what_was_not_measured_has_a_caveat_and_no_word_of_measurement() -> None:
    assert Evidence.MEASURED.caveat == ""
    for evidence in (Evidence.MODELLED, Evidence.STAND_IN):
        assert evidence.caveat
        for word in (evidence.takes, evidence.gets, evidence.seen):
            assert "measured" not in word
