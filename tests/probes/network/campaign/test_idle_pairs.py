import pytest

from probes.network.campaign.idle_pairs import Utilisation, parse_traffic_log, without_idle
from probes.network.ports import PortPair
from tests.probes.network.clusters import cluster
from tuccl.errors import MachineError

PORTS = cluster(5)
EVERY_PAIR = [PortPair(a, b) for a in range(5) for b in range(a + 1, 5)]


def log(*uses: tuple[int, int, float]) -> Utilisation:
    return {(f"node{a}", "mlx5_0", f"node{b}", "mlx5_0"): share for a, b, share in uses}


def test_without_a_log_everything_is_kept() -> None:
    assert without_idle(PORTS, EVERY_PAIR, None) == (EVERY_PAIR, ())
    assert without_idle(PORTS, EVERY_PAIR, {}) == (EVERY_PAIR, ())


def test_a_pair_is_idle_when_the_log_lists_it_and_no_direction_is_used() -> None:
    uses = log((0, 1, 0.0), (1, 0, 0.5), (3, 2, 0.001), (0, 4, 0.02))
    kept, notes = without_idle(PORTS, EVERY_PAIR, uses)
    assert kept == [pair for pair in EVERY_PAIR if pair != PortPair(2, 3)]
    assert "1 of 10 planned pairs idle" in notes[0]
    assert "1 are not measured" in notes[0]


def test_no_port_loses_its_last_two_pairs() -> None:
    uses = log(*((a, b, 0.0) for a in range(5) for b in range(5) if a != b))
    kept, _ = without_idle(PORTS, EVERY_PAIR, uses)
    assert len(kept) < len(EVERY_PAIR)
    for port in range(5):
        assert sum(port in (pair.client, pair.server) for pair in kept) >= 2


TOP = "# tuccl traffic log 1\nsrc_host,src_nic,dst_host,dst_nic,utilisation\n"


def test_a_log_has_shares_by_both_ends() -> None:
    text = TOP + "n2,eth0,n1,eth0,0\n# night\n\nn1, mlx5_0, n2, mlx5_0, 0.42\n"
    assert parse_traffic_log(text) == {
        ("n2", "eth0", "n1", "eth0"): 0.0,
        ("n1", "mlx5_0", "n2", "mlx5_0"): 0.42,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        TOP.replace("log 1", "log 2"),
        "# tuccl traffic log 1\n",
        "# tuccl traffic log 1\nn1,a,n2,b,0\n",
        TOP + "n1,a,n2,b\n",
        TOP + "n1,,n2,b,0\n",
        TOP + "n1,a,n2,b,1.5\n",
        TOP + "n1,a,n2,b,-1\n",
        TOP + "n1,a,n2,b,nan\n",
        TOP + "n1,a,n2,b,busy\n",
        TOP + "n1,a,n2,b,0\nn1,a,n2,b,1\n",
    ],
)
def test_malformed_logs_are_refused(text: str) -> None:
    with pytest.raises(MachineError, match="traffic log"):
        parse_traffic_log(text)


def test_a_field_beyond_what_csv_takes_is_refused_by_line() -> None:
    with pytest.raises(MachineError, match="traffic log line 3: field larger than"):
        parse_traffic_log(f"{TOP}n1,{'a' * 200_000},n2,b,0\n")
