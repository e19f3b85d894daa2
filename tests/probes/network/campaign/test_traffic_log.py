import pytest

from probes.network.campaign.idle_pairs import LinkUse, parse_traffic_log
from tuccl.errors import MachineError

TOP = "# tuccl traffic log 1\nsrc_host,src_nic,dst_host,dst_nic,utilisation\n"


def test_links_in_the_order_of_the_log() -> None:
    text = TOP + "n2,eth0,n1,eth0,0\n# night\n\nn1, mlx5_0, n2, mlx5_0, 0.42\n"
    assert parse_traffic_log(text) == (
        LinkUse("n2", "eth0", "n1", "eth0", 0.0),
        LinkUse("n1", "mlx5_0", "n2", "mlx5_0", 0.42),
    )


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
