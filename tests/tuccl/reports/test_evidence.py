import pytest

from lookup_tables.table import Table
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.evidence import Evidence, evidence_of

EMPTY = Table("machine", "0" * 16, (), ())


@pytest.mark.parametrize(
    ("backend", "provenance", "evidence"),
    [
        ("simulated", None, Evidence.MODELLED),
        ("replay", "simulated", Evidence.MODELLED),
        ("replay", "sockets", Evidence.STAND_IN),
        ("sockets", None, Evidence.STAND_IN),
        ("nccl", None, Evidence.MEASURED),
        ("replay", "nccl,executor", Evidence.MEASURED),
    ],
)
def test_evidence_follows_from_the_entries_or_else_the_backend(
    backend: str, provenance: str | None, evidence: Evidence
) -> None:
    table = EMPTY if provenance is None else tuned(FOUR_GPUS, provenance)[0]
    assert evidence_of(table, backend) is evidence


def test_times_that_were_not_measured_have_a_caveat_and_are_not_called_measured() -> None:
    assert Evidence.MEASURED.caveat == ""
    for evidence in (Evidence.MODELLED, Evidence.STAND_IN):
        assert evidence.caveat
        for word in (evidence.takes, evidence.gets, evidence.seen):
            assert "measured" not in word
