"""The evidence of an entry on how its winner was confirmed."""

from dataclasses import replace

import pytest

from lookup_tables.confirmation import Confirmation, Estimator, NoStarts, Reference
from lookup_tables.provenance import NcclVersion, Provenance
from tuccl.pipeline.results import confirmation_of
from tuccl.statistics.intervals import Interval
from tuccl.trials.config import STOCK, Config, ProcessProfile
from tuccl.tuning.decision import Comparison

RING = Config("ring", "LL", 4)
MEASURED = Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0")
COMPARED = Comparison(
    config=RING,
    reference=STOCK,
    time_us=10.0,
    reference_us=11.07,
    ratio=1.107,
    interval=Interval(1.087, 1.13),
    samples=72,
    spread=0.01,
    estimator=Estimator.MEAN_OVER_STARTS,
    starts=3,
)


def test_an_entry_has_its_estimator_interval_and_starts() -> None:
    assert confirmation_of(COMPARED, MEASURED) == Confirmation(
        Reference.STOCK, Estimator.MEAN_OVER_STARTS, 1.107, 1.087, 1.13, 0.99, 3
    )


@pytest.mark.parametrize(
    ("config", "reference"),
    [
        (STOCK, Reference.STOCK),
        (ProcessProfile(min_nchannels=32).default, Reference.PROFILE),
        (RING, Reference.BUILTIN),
    ],
)
def test_an_entry_names_its_reference(config: Config, reference: Reference) -> None:
    assert confirmation_of(replace(COMPARED, reference=config), MEASURED).reference is reference


@pytest.mark.parametrize(
    ("provenance", "starts"),
    [
        (MEASURED, 3),
        (Provenance("sockets"), 3),
        (Provenance("simulated"), NoStarts.MODELLED),
        (replace(MEASURED, replayed=True), NoStarts.RECORDED),
        (Provenance("simulated", replayed=True), NoStarts.MODELLED),
    ],
)
def test_without_workers_an_entry_says_why_there_were_no_starts(
    provenance: Provenance, starts: int | NoStarts
) -> None:
    assert confirmation_of(COMPARED, provenance).starts == starts
