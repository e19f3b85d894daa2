import random
from dataclasses import replace

import pytest

from probes.network.campaign.outliers import (
    Diagnosis,
    End,
    Quantity,
    Role,
    Sample,
    diagnose,
    judge,
    references,
)
from probes.network.port_groups import Distance, LinkClass
from probes.network.ports import PortPair

KIND = LinkClass(0, Distance.SAME_RACK, 50.0, "ib_write_bw")


def circle(count: int, slow: dict[tuple[int, int], float] | None = None) -> list[Sample]:
    """Two circles of pairs at 48 GB/s, with some pairs at another bandwidth."""
    pairs = [PortPair(i, (i + step) % count) for step in (1, 2) for i in range(count)]
    slow = slow or {}
    return [Sample(p, KIND, slow.get((p.client, p.server), 48.0)) for p in pairs]


def found(samples: list[Sample], quantity: Quantity = Quantity.BANDWIDTH) -> Diagnosis:
    return diagnose(judge(samples, references(samples, quantity), quantity))


def test_fifteen_per_cent_below_the_median_are_low() -> None:
    limit = references(circle(30), Quantity.BANDWIDTH)[KIND]
    assert limit.figure == 48.0
    assert limit.limit == pytest.approx(48.0 * 0.85)


def test_few_ports_are_compared_with_the_better_quartile() -> None:
    # Three ports, one slow: four of the six figures are low, and the median would be, too.
    pairs = [PortPair(a, b) for a in range(3) for b in range(3) if a != b]
    samples = [Sample(p, KIND, 24.0 if 2 in (p.client, p.server) else 48.0) for p in pairs]
    reference = references(samples, Quantity.BANDWIDTH)[KIND]
    assert reference.figure == 48.0
    assert reference.limit == pytest.approx(48.0 * 0.8)
    again = [Sample(PortPair(2, 0), KIND, 24.0)] * 6
    assert references([*samples, *again], Quantity.BANDWIDTH)[KIND] == reference


def test_small_networks_of_one_line_rate_pool_their_samples() -> None:
    rails = [LinkClass(rail, Distance.SAME_RACK, 50.0, "ib_write_bw") for rail in range(16)]
    figures = [24.0, *([48.0] * 15)]
    samples = [
        Sample(PortPair(2 * i, 2 * i + 1), kind, figure)
        for i, (kind, figure) in enumerate(zip(rails, figures, strict=True))
    ]
    assert {references(samples, Quantity.BANDWIDTH)[kind].figure for kind in rails} == {48.0}
    slower_class = LinkClass(20, Distance.SAME_RACK, 12.5, "ib_write_bw")
    samples.append(Sample(PortPair(90, 91), slower_class, 12.0))
    assert references(samples, Quantity.BANDWIDTH)[slower_class].figure == 12.0


def test_where_half_of_a_class_is_slow_the_better_quartile_counts() -> None:
    slow = {(i, (i + step) % 40): 24.0 for step in (1, 2) for i in range(22)}
    reference = references(circle(40, slow), Quantity.BANDWIDTH)[KIND]
    assert reference.figure == 48.0
    assert reference.limit == pytest.approx(48.0 * 0.85)


def test_where_most_of_a_class_is_slow_the_line_rate_is_the_reference() -> None:
    # Senders 0 to 34 of 40 are slow: 10 of the 80 pairs are good.
    slow = {(i, (i + step) % 40): 24.0 for step in (1, 2) for i in range(35)}
    reference = references(circle(40, slow), Quantity.BANDWIDTH)[KIND]
    assert reference.figure == 48.0
    assert reference.limit == pytest.approx(48.0 * 0.85)
    more = {(i, (i + step) % 40): 24.0 for step in (1, 2) for i in range(37)}
    assert references(circle(40, more), Quantity.BANDWIDTH)[KIND].figure == 24.0, "6 of 80"


def test_the_line_rate_is_no_reference_where_it_is_unknown_or_not_reached() -> None:
    slow = {(i, (i + step) % 40): 24.0 for step in (1, 2) for i in range(34)}
    for line_rate_gb_per_s in (0.0, 100.0):
        kind = replace(KIND, line_rate_gb_per_s=line_rate_gb_per_s)
        samples = [replace(sample, link_class=kind) for sample in circle(40, slow)]
        assert references(samples, Quantity.BANDWIDTH)[kind].figure == 24.0


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1, 0.15])
@pytest.mark.parametrize("share", [0.65, 0.72, 0.8])
def test_the_upper_tail_of_a_class_that_scatters_is_not_its_usual(
    noise: float, share: float
) -> None:
    for seed in range(4):
        chance = random.Random(seed)
        samples = [Sample(s.pair, KIND, 50 * share * chance.gauss(1, noise)) for s in circle(400)]
        middle = references(samples, Quantity.BANDWIDTH)[KIND].figure
        assert middle == pytest.approx(50 * share, rel=0.05)


def test_latency_has_a_floor_of_five_us_and_half() -> None:
    short = [Sample(s.pair, KIND, 2.0) for s in circle(30)]
    long = [Sample(s.pair, KIND, 40.0) for s in circle(30)]
    assert references(short, Quantity.LATENCY)[KIND].limit == pytest.approx(7.0)
    assert references(long, Quantity.LATENCY)[KIND].limit == pytest.approx(60.0)


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.03, 0.05])
def test_noise_is_no_fault(noise: float) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        samples = [Sample(s.pair, KIND, 48.0 * chance.gauss(1, noise)) for s in circle(1000)]
        diagnosis = found(samples)
        assert len(diagnosis.low) <= 2
        assert not diagnosis.suspects


def test_a_slow_port_is_suspect_in_both_roles_and_its_peers_in_none() -> None:
    slow = {(5, 6): 24.0, (5, 7): 24.0, (4, 5): 24.0, (3, 5): 24.0}
    diagnosis = found(circle(30, slow))
    assert set(diagnosis.suspects) == {End(5, Role.SENDS), End(5, Role.RECEIVES)}
    assert len(diagnosis.alone(End(5, Role.SENDS))) == 2
    assert not diagnosis.between


def test_a_port_that_only_receives_slowly() -> None:
    diagnosis = found(circle(30, {(4, 5): 24.0, (3, 5): 24.0}))
    assert set(diagnosis.suspects) == {End(5, Role.RECEIVES)}


def test_one_slow_pair_is_a_slow_path_and_not_a_slow_port() -> None:
    diagnosis = found(circle(30, {(4, 5): 24.0}))
    assert not diagnosis.suspects
    assert set(diagnosis.between) == {PortPair(4, 5)}


def test_the_figure_of_a_slower_class_clears_nobody() -> None:
    across = LinkClass(0, Distance.OTHER_RACK, 50.0, "ib_write_bw")
    slow = {(5, 6): 24.0, (5, 7): 24.0, (4, 5): 24.0, (3, 5): 24.0}
    samples = circle(30, slow) + [
        Sample(PortPair(i, (i + 15) % 30), across, 24.0) for i in range(30)
    ]
    assert set(found(samples).suspects) == {End(5, Role.SENDS), End(5, Role.RECEIVES)}


def test_a_pair_that_is_normal_in_its_last_measurement_has_recovered() -> None:
    again = Sample(PortPair(4, 5), KIND, 47.0)
    diagnosis = found([*circle(30, {(4, 5): 24.0}), again])
    assert diagnosis.recovered == (PortPair(4, 5),)
    assert not diagnosis.between


def test_latency_suspects_have_no_direction() -> None:
    samples = [
        Sample(s.pair, KIND, 30.0 if 7 in (s.pair.client, s.pair.server) else 3.0)
        for s in circle(30)
    ]
    assert set(found(samples, Quantity.LATENCY).suspects) == {End(7, Role.EITHER)}
