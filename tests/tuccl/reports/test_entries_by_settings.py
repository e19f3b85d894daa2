"""Entries of a shape as those of the settings that jobs without the executor have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.confirmation import Reference
from lookup_tables.lookup import check_table
from tests.tuccl.tuned_tables import FOUR_GPUS, TWO_HOSTS, tuned
from tuccl.reports.entries_by_settings import entries_by_settings


def test_a_setting_beside_a_schedule_has_its_own_time_and_evidence() -> None:
    table, report = tuned(FOUR_GPUS)
    found = entries_by_settings(table, report, FOUR_GPUS)
    assert [entry.tuned_bytes for entry in found] == [1024, 4096], "2K has a schedule alone"
    beside, alone = found
    assert (beside.schedule, beside.time_us, beside.builtin_time_us) == (None, 8.0, 8.0)
    assert beside.confirmation is not None
    assert beside.confirmation.reference is Reference.STOCK
    assert beside.confirmation.ratio == pytest.approx(2.0)
    assert alone == table.entries[2]
    check_table(type(table)(table.topology_name, table.fingerprint, table.gpu_models, found))
    assert entries_by_settings(table, report, TWO_HOSTS) == ()


def test_an_entry_of_a_learned_size_has_no_key_and_its_own_times() -> None:
    table, report = tuned(FOUR_GPUS)
    both, alone, ring = table.entries
    made = [
        replace(entry, tuned_bytes=entry.tuned_bytes + 16, builtin_time_us=7.0)
        for entry in (both, ring)
    ]
    learned = replace(table, entries=(made[0], alone, made[1]))
    beside, own = entries_by_settings(learned, report, FOUR_GPUS)
    assert (beside.schedule, beside.time_us, beside.confirmation) == (None, 7.0, None)
    assert beside == replace(made[0], schedule=None, time_us=7.0, confirmation=None)
    assert own == made[1]
