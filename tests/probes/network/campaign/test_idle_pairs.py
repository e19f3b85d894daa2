from probes.network.campaign.idle_pairs import LinkUse, utilisation_of, without_idle
from probes.network.ports import PortPair
from tests.probes.network.clusters import cluster

PORTS = cluster(5)
EVERY_PAIR = [PortPair(a, b) for a in range(5) for b in range(a + 1, 5)]


def log(*uses: tuple[int, int, float]) -> dict[tuple[str, str, str, str], float]:
    return utilisation_of(
        [LinkUse(f"node{a}", "mlx5_0", f"node{b}", "mlx5_0", share) for a, b, share in uses]
    )


def test_without_a_log_everything_is_kept() -> None:
    assert without_idle(PORTS, EVERY_PAIR, None, 0.01) == (EVERY_PAIR, ())
    assert without_idle(PORTS, EVERY_PAIR, {}, 0.01) == (EVERY_PAIR, ())


def test_a_pair_is_idle_when_the_log_lists_it_and_no_direction_is_used() -> None:
    uses = log((0, 1, 0.0), (1, 0, 0.5), (3, 2, 0.001), (0, 4, 0.02))
    kept, notes = without_idle(PORTS, EVERY_PAIR, uses, 0.01)
    assert kept == [pair for pair in EVERY_PAIR if pair != PortPair(2, 3)]
    assert "1 of 10 planned pairs idle" in notes[0]
    assert "1 are not measured" in notes[0]


def test_no_port_loses_its_last_two_pairs() -> None:
    uses = log(*((a, b, 0.0) for a in range(5) for b in range(5) if a != b))
    kept, _ = without_idle(PORTS, EVERY_PAIR, uses, 0.01)
    assert len(kept) < len(EVERY_PAIR)
    for port in range(5):
        assert sum(port in (pair.client, pair.server) for pair in kept) >= 2
