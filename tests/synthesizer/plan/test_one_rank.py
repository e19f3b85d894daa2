"""A single rank, and invalid options."""

import pytest

from synthesizer.experts import expert_algorithms
from synthesizer.ir.collectives import Collective
from synthesizer.plan.synthesize import synthesize
from tests.synthesizer.hand_sketches import direct
from tuccl.errors import InfeasibleError

KNOWN = [collective for collective in Collective if collective is not Collective.CUSTOM]


@pytest.mark.parametrize("collective", KNOWN)
def test_one_rank_alone_has_nothing_to_exchange(collective: Collective) -> None:
    alone = direct(1, {})
    with pytest.raises(InfeasibleError, match="one rank alone"):
        expert_algorithms(collective, alone)
    with pytest.raises(InfeasibleError, match="one rank alone"):
        synthesize(collective, alone, 1024)
