from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.racks.ibnetdiscover import AdapterPort, parse_ibnetdiscover
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError

FABRIC = """\
# Topology file: generated on a Monday
vendid=0x2c9
switchguid=0xa1(a1)
Switch\t41 "S-00000000000000a1"\t\t# "leaf" enhanced port 0 lid 7 lmc 0
[1]\t"H-00000000000000c1"[1](c1) \t\t# "node01 mlx5_0" lid 9 4xHDR
[9]\t"S-00000000000000a3"[1]\t\t# "spine" lid 8 4xHDR
[41]\t"H-00000000000000af"[1](af) \t\t# "Mellanox Technologies Aggregation Node" lid 2 4xHDR

Switch\t41 "S-00000000000000a2"\t\t# "leaf" enhanced port 0 lid 11 lmc 0
[1]\t"H-00000000000000c2"[1](c2) \t\t# "node01 mlx5_1" lid 10 4xHDR

Switch\t41 "S-00000000000000a3"\t\t# "spine" enhanced port 0 lid 8 lmc 0
[1]\t"S-00000000000000a1"[9]\t\t# "leaf" lid 7 4xHDR

Ca\t1 "H-00000000000000c1"\t\t# "node01 mlx5_0"
[1](c1) \t"S-00000000000000a1"[1]\t\t# lid 9 lmc 0 "leaf" lid 7 4xHDR

Ca\t2 "H-00000000000000c3"\t\t# "node02 mlx5_0"
[2](c4) \t"S-00000000000000a3"[5]\t\t# lid 12 lmc 0 "spine" lid 8 4xHDR
"""


def test_adapters_and_their_leaves() -> None:
    assert parse_ibnetdiscover(FABRIC) == (
        AdapterPort(1, "node01 mlx5_0", "leaf (00000000000000a1)"),
        AdapterPort(1, "node01 mlx5_1", "leaf (00000000000000a2)"),
        AdapterPort(2, "node02 mlx5_0", "spine"),
    )


def test_host_and_device_of_a_description() -> None:
    port = parse_ibnetdiscover(FABRIC)[1]
    assert (port.host, port.device) == ("node01", "mlx5_1")


def test_blocks_that_contradict_each_other_are_refused() -> None:
    text = FABRIC.replace('[1](c1) \t"S-00000000000000a1"', '[1](c1) \t"S-00000000000000a2"')
    with pytest.raises(MachineError, match="line 16: H-00000000000000c1 port 1 is at S-"):
        parse_ibnetdiscover(text)


@pytest.mark.parametrize("text", ["", "[1] x\n", FABRIC[:190]])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MachineError):
        parse_ibnetdiscover(text)


@given(st.integers(0, len(FABRIC)))
def test_a_list_cut_anywhere_knows_no_other_leaves(end: int) -> None:
    try:
        ports = parse_ibnetdiscover(FABRIC[:end])
    except MachineError:
        return
    # A name that only one switch has so far is not followed by its GUID.
    whole = {(at.description, at.port): at.switch for at in parse_ibnetdiscover(FABRIC)}
    assert all(whole[at.description, at.port].startswith(at.switch) for at in ports)


@requires_shared_data
def test_real_fabric() -> None:
    path = SHARED_DATA / "probes" / "fabric" / "ibnetdiscover-superbench.txt"
    ports = parse_ibnetdiscover(path.read_text("utf-8"))
    assert len(ports) == 10
    assert Counter(port.switch for port in ports) == {
        f"MF0;rmd70-0101-0919-{number}ib0:MQM8700/U1": 2
        for number in ("01", "02", "03", "11", "12")
    }


@pytest.mark.parametrize("old", ["[1](c1)", "[1](c2)"])
def test_a_port_of_thousands_of_digits_is_refused_by_line(old: str) -> None:
    text = FABRIC.replace(old, old.replace("1", "1" * 5000, 1))
    with pytest.raises(MachineError, match=r"line \d+: '\[1+.* is cut or not the line of a port"):
        parse_ibnetdiscover(text)
