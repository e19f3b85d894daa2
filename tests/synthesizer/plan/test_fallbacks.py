"""Synthesis without HiGHS, without time for a solver, and on one rank alone."""

from __future__ import annotations

import pulp
import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from synthesizer.experts import expert_algorithms
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.prove.verifier import verify
from synthesizer.solve import solver
from tests.synthesizer.hand_sketches import direct, switched
from tuccl.errors import InfeasibleError

pytestmark = pytest.mark.long

SIZE_BYTES = 1 << 16
UNEVEN = switched(2, 3, rotations=False)
NO_TIME = SynthesisOptions(time_limit_s=1e-6)


@pytest.fixture
def without_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    if solver._cbc(1.0, 0.0, 1) is None:
        pytest.skip("CBC is not installed")
    monkeypatch.setattr(pulp.HiGHS, "available", lambda _self: False)


@pytest.mark.usefixtures("without_highs")
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_cbc_takes_the_place_of_highs(collective: Collective) -> None:
    result = synthesize(collective, UNEVEN, SIZE_BYTES)
    assert verify(result.algorithm).proved
    # CBC solves many trees one after another, as HiGHS does.
    assert (result.fallback or "routed one tree after another").startswith("routed one tree")
    assert result.solver_gap < 0.025


@pytest.mark.usefixtures("without_highs")
@pytest.mark.parametrize(
    "collective",
    [Collective.ALL_GATHER, pytest.param(Collective.REDUCE, marks=pytest.mark.slow)],
)
def test_without_time_for_cbc_greedy_routes_tell_their_gap(collective: Collective) -> None:
    _greedy_with_gap(collective)


@pytest.mark.parametrize(
    "collective",
    [pytest.param(Collective.BROADCAST, marks=pytest.mark.slow), Collective.REDUCE],
)
def test_without_time_for_highs_greedy_routes_tell_their_gap(collective: Collective) -> None:
    _greedy_with_gap(collective)


def _greedy_with_gap(collective: Collective) -> None:
    hurried = synthesize(collective, UNEVEN, SIZE_BYTES, NO_TIME)
    assert verify(hurried.algorithm).proved
    assert hurried.fallback is not None
    assert "limit" in hurried.fallback
    assert hurried.routing_bound_us > 0
    least_us = hurried.routing_bound_us / (1 - hurried.solver_gap)
    assert 0.02 < hurried.solver_gap < 1
    # The gap is honest: with time, routes are no better than the bound that was stated.
    patient = synthesize(collective, UNEVEN, SIZE_BYTES)
    assert hurried.routing_bound_us <= patient.routing_bound_us / (1 - patient.solver_gap) + 1e-6
    assert patient.routing_bound_us <= least_us + 1e-6


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_alone_has_nothing_to_exchange(collective: Collective) -> None:
    alone = direct(1, {})
    with pytest.raises(InfeasibleError, match="one rank alone"):
        expert_algorithms(collective, alone)
    with pytest.raises(InfeasibleError, match="one rank alone"):
        synthesize(collective, alone, 1024)
