import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.files.read import machine_from_bytes, shipped_machines
from probes.nvidia.matrix_check import compare_with_matrix
from probes.nvidia.nvidia_smi_topo import topology_of_matrix
from probes.nvidia.topo_matrix import Connection, parse_topo_matrix
from probes.topology.graph import DeviceKind, LinkKind, Provenance, Topology
from probes.topology.paths import Proximity, pcie_distance
from probes.topology.validation import validate
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError

FILES = SHARED_DATA / "nvidia_smi_topo"

TWO_SOCKETS = """\
$ nvidia-smi topo -m
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tSYS\tSYS\tPXB\tSYS\t0-31\t0
GPU1\tPIX\t X \tSYS\tSYS\tPXB\tSYS\t0-31\t0
GPU2\tSYS\tSYS\t X \tNODE\tSYS\tPHB\t32-63\t1
GPU3\tSYS\tSYS\tNODE\t X \tSYS\tNODE\t32-63\t1
NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPHB\tNODE\tSYS\t X

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


def table(cells: dict[tuple[int, int], str], count: int, affinity: str = "0-31 0") -> str:
    """A table of GPUs; cells by (smaller, larger) index."""
    names = [f"GPU{i}" for i in range(count)]
    lines = ["     " + " ".join(names) + " CPU Affinity NUMA Affinity"]
    for i in range(count):
        row = ["X" if i == j else cells[min(i, j), max(i, j)] for j in range(count)]
        lines.append(f"GPU{i} " + " ".join(row) + f" {affinity}")
    return "\n".join(lines) + "\n"


def alike(word: str, count: int) -> str:
    return table(dict.fromkeys(itertools.combinations(range(count), 2), word), count)


def machine(text: str) -> Topology:
    topology = topology_of_matrix(parse_topo_matrix(text, "mail"), "mail")
    validate(topology)
    return topology


def nvlinks(topology: Topology) -> dict[tuple[str, str], int]:
    return {(a.src, a.dst): a.lanes for a in topology.links if a.kind is LinkKind.NVLINK}


def test_cells_names_and_affinities_are_read() -> None:
    matrix = parse_topo_matrix(TWO_SOCKETS, "mail")
    assert matrix.gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert matrix.nics == ("NIC0", "NIC1")
    assert matrix.cells["GPU0", "GPU1"].connection is Connection.PIX
    assert matrix.cells["NIC1", "GPU3"].connection is Connection.NODE
    assert matrix.nic_name("NIC1") == "mlx5_1"
    assert matrix.affinity["GPU2"] == "32-63 1"
    assert matrix.notes == ()


def test_colours_crlf_and_spaces_make_no_difference() -> None:
    shown = TWO_SOCKETS.replace("\tGPU0\t", "\t\x1b[4mGPU0\t", 1).replace(
        "NUMA Affinity\n", "NUMA Affinity\x1b[0m\n", 1
    )
    assert parse_topo_matrix(shown, "mail") == parse_topo_matrix(TWO_SOCKETS, "mail")
    for variant in (TWO_SOCKETS.replace("\n", "\r\n"), TWO_SOCKETS.replace("\t", "   ")):
        assert parse_topo_matrix(variant, "mail") == parse_topo_matrix(TWO_SOCKETS, "mail")


def test_lines_that_a_terminal_wrapped_are_joined() -> None:
    head, *rows = TWO_SOCKETS.splitlines()[1:8]
    wrapped = [part for row in rows for part in (row[:14].rstrip(), row[14:].lstrip())]
    assert "GPU0\t X \tPIX\tSY" not in wrapped
    text = "\n".join(
        [head[:16], head[16:], *(row.replace("\tSYS\tSYS", "\nSYS\tSYS") for row in rows)]
    )
    whole = "\n".join([head, *rows])
    assert parse_topo_matrix(text + "\n", "m").cells == parse_topo_matrix(whole + "\n", "m").cells


@given(st.data())
def test_a_table_that_lost_spaces_is_the_whole_one_or_refused(data: st.DataObject) -> None:
    """A space may be lost wherever two words of a line stand beside each other."""
    whole = parse_topo_matrix(TWO_SOCKETS, "mail")
    head, *rest = TWO_SOCKETS.splitlines()[1:]
    lines = []
    for line in [head, *rest[:6]]:
        words = line.split()
        lost = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
        if re.match(r"\d", words[-1]):
            lost[-1] = False  # Whether 0-311 is 0-31 and 1 nobody knows.
        lines.append(
            "".join(word if glued else f"\t{word}" for word, glued in zip(words, lost, strict=True))
        )
    assert parse_topo_matrix("\n".join([*lines, *rest[6:]]) + "\n", "mail") == whole


@pytest.mark.parametrize(
    ("stuck", "links"),
    [
        ("NV180-15", 18),
        ("NV40-3", 4),
        ("NV1832-47", 18),
        ("NV120,2-4", 12),
        ("NV648-9", 64),
        ("NV18-9", 1),
    ],
)
def test_a_count_that_ran_into_cpus_is_read_where_one_division_is_possible(
    stuck: str, links: int
) -> None:
    text = f"     GPU0 GPU1 CPU Affinity\nGPU0 X {stuck} 0\nGPU1 NV{links} X 0-3 0\n"
    assert parse_topo_matrix(text, "m").cells["GPU0", "GPU1"].nvlinks == links


@pytest.mark.parametrize("stuck", ["NV124-47", "NV7415-16", "NODESYSX9y", "PIXPI"])
def test_words_that_may_be_divided_in_two_ways_or_none_are_refused_with_their_column(
    stuck: str,
) -> None:
    text = f"     GPU0 GPU1 CPU Affinity\nGPU0 X {stuck} 0\nGPU1 NV1 X 0-3 0\n"
    with pytest.raises(MachineError, match=f"'{stuck}' at row GPU0, column GPU1"):
        parse_topo_matrix(text, "m")


def test_a_name_of_the_legend_without_a_column_is_refused() -> None:
    with pytest.raises(
        MachineError, match="the NIC legend names NIC2, but the table has no such col"
    ):
        parse_topo_matrix(TWO_SOCKETS + "  NIC2: mlx5_2\n", "mail")


@requires_shared_data
def test_a_public_table_from_a_narrow_terminal_is_read() -> None:
    path = SHARED_DATA / "public_cases" / "smi-stuck-header.smi"
    matrix = parse_topo_matrix(path.read_text(), path.name)
    assert (len(matrix.gpus), len(matrix.nics), matrix.nic_name("NIC12")) == (2, 13, "mlx5_12")
    assert matrix.cells["GPU0", "NIC11"].connection is Connection.PIX
    assert matrix.cells["GPU1", "NIC11"].connection is Connection.NODE


def test_a_gpu_without_the_nvlinks_of_its_peers_is_told() -> None:
    pairs = itertools.combinations(range(6), 2)
    text = table({pair: "SYS" if 2 in pair else "NV18" for pair in pairs}, 6)
    notes = machine_from_bytes(text.encode(), "mail").notes
    assert "Equal NVLinks between all of GPU[0-1,3-5]: taken as behind an NVSwitch." in notes
    assert notes[-1] == (
        "Of the GPUs of a host 5 have 18 NVLinks, n0/gpu2 has none: see `nvidia-smi nvlink "
        "--status` there if it should have as many."
    )
    assert (
        machine_from_bytes(alike("NV18", 6).encode(), "mail").notes
        == machine(alike("NV18", 6)).notes
    )


@given(st.integers(0, 7), st.integers(1, 11))
def test_a_gpu_with_fewer_nvlinks_is_told_of_nccls_dump_too(gpu: int, links: int) -> None:
    text = shipped_machines()["a100-8gpu-8nic"].read_text()
    whole = machine_from_bytes(text.encode(), "dump")
    name = [device.name for device in whole.gpus][gpu]
    twelve = 'count="12"'
    parts = text.split(twelve)
    assert len(parts) == 9
    before, after = twelve.join(parts[: gpu + 1]), twelve.join(parts[gpu + 1 :])
    told = machine_from_bytes(f'{before}count="{links}"{after}'.encode(), "dump").notes
    (note,) = [each for each in told if each not in whole.notes]
    assert f"7 have 12 NVLinks, {name} has {links}: see" in note


def test_soc_of_old_drivers_is_sys() -> None:
    text = alike("SOC", 2)
    assert parse_topo_matrix(text, "m").cells["GPU0", "GPU1"].connection is Connection.SYS


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("GPU1\tPIX\t X ", "GPU1\tFAR\t X "),
        ("GPU1\tPIX\t X ", "GPU1\t X \tPIX"),
        ("GPU0\t X \tPIX", "GPU0\tPIX\tPIX"),
        ("GPU1\tPIX", "GPU1\tPXB"),
        ("GPU1\tPIX", "GPU1\tNV0"),
        ("\tNIC1\tCPU", "\tCPU"),
        ("NIC1\tSYS\tSYS\tPHB\tNODE\tSYS\t X\n", ""),
        ("\tNODE\tSYS\t X\n", "\n"),
        ("GPU3\tSYS", "GPU2\tSYS"),
        ("\tGPU3\tNIC0", "\tGPU2\tNIC0"),
    ],
)
def test_a_damaged_table_is_refused(old: str, new: str) -> None:
    assert old in TWO_SOCKETS
    with pytest.raises(MachineError):
        parse_topo_matrix(TWO_SOCKETS.replace(old, new), "mail")


def test_control_characters_of_a_damaged_table_do_not_reach_the_message() -> None:
    with pytest.raises(MachineError, match=r"no row for NIC\?1") as caught:
        parse_topo_matrix(TWO_SOCKETS.replace("\tNIC1", "\tNIC\x071", 1), "mail")
    assert str(caught.value).isprintable()


@given(st.integers(0, len(TWO_SOCKETS)))
def test_a_cut_is_refused_or_costs_names_at_most(end: int) -> None:
    whole = parse_topo_matrix(TWO_SOCKETS, "mail")
    try:
        matrix = parse_topo_matrix(TWO_SOCKETS[:end], "mail")
    except MachineError:
        return
    assert matrix.cells == whole.cells
    assert matrix.affinity == whole.affinity
    complete = "mlx5_1".endswith(TWO_SOCKETS[end:].strip())  # A cut name is a name.
    assert complete or any("NIC legend has no name" in note for note in matrix.notes)


def test_an_affinity_that_may_be_cut_is_not_used() -> None:
    text = alike("NV2", 2)
    matrix = parse_topo_matrix(text[: text.rindex("31 0")], "mail")
    assert matrix.affinity == {"GPU0": "0-31 0"}
    assert matrix.notes == (
        "The text ends in the row of GPU1: its affinity may be cut, so is not used.",
    )


def test_a_machine_has_switches_cpus_and_sockets_as_the_table_says() -> None:
    topology = machine(TWO_SOCKETS)
    nic0, nic1 = topology.nics
    assert (nic0.os_name, nic1.os_name) == ("mlx5_0", "mlx5_1")
    distances = {
        (gpu.index, nic.os_name): pcie_distance(topology, gpu.name, nic.name)
        for gpu in topology.gpus
        for nic in topology.nics
    }
    near, middle, far = Proximity.SWITCH, Proximity.HOST_BRIDGE, Proximity.SOCKETS
    assert [distances[i, "mlx5_0"] for i in range(4)] == [near, near, far, far]
    assert [distances[i, "mlx5_1"] for i in range(4)] == [far, far, middle, middle]
    # PIX: one switch of their own, below the one that PXB tells of.
    switches = [d for d in topology.devices if d.kind is DeviceKind.PCIE_SWITCH]
    assert len(switches) == 2
    assert not any(device.bus_id for device in topology.devices)


def test_everything_in_such_a_machine_is_assumed_and_says_so() -> None:
    topology = machine(alike("NV4", 4))
    assert {link.provenance for link in topology.links} == {Provenance.ASSUMED}
    assert any("nvidia-smi topo -m` alone" in note for note in topology.notes)


@pytest.mark.parametrize(
    ("word", "count", "switched"),
    [
        ("NV2", 2, False),  # an RTX 3090 bridge
        ("NV12", 2, False),  # three bridges between two A100 or H100 on PCIe cards
        ("NV4", 4, False),  # HGX A100 of four: 3 x 4 = 12 links
        ("NV6", 4, False),  # HGX H100 of four: 3 x 6 = 18 links
        ("NV12", 4, True),  # half of an A100 host: 36 links if direct
        ("NV18", 4, True),
        ("NV18", 2, True),
        ("NV8", 8, True),  # A800
        ("NV12", 8, True),
        ("NV6", 16, True),  # DGX-2
    ],
)
def test_equal_nvlinks_are_an_nvswitch_where_no_part_has_so_many(
    word: str, count: int, switched: bool
) -> None:
    topology = machine(alike(word, count))
    lanes = int(word[2:])
    found = nvlinks(topology)
    if switched:
        assert found == {
            pair: lanes
            for i in range(count)
            for pair in ((f"n0/gpu{i}", "n0/nvswitch0"), ("n0/nvswitch0", f"n0/gpu{i}"))
        }
    else:
        pairs = itertools.permutations(range(count), 2)
        assert found == {(f"n0/gpu{i}", f"n0/gpu{j}"): lanes for i, j in pairs}
    assert set(found.values()) == {lanes}


def test_unequal_nvlinks_beyond_what_a_gpu_has_are_refused() -> None:
    cells = {(0, 1): "NV12", (0, 2): "NV12", (1, 2): "NV4"}
    matrix = parse_topo_matrix(table(cells, 3), "mail")
    with pytest.raises(MachineError, match="24 NVLinks at one GPU of GPU0 to GPU2"):
        topology_of_matrix(matrix, "mail")


def test_gpus_behind_nvlinks_sit_where_their_affinity_says() -> None:
    rows = alike("NV12", 8).splitlines()
    text = "\n".join(rows[:5] + [row.replace("0-31 0", "32-63 1") for row in rows[5:]]) + "\n"
    topology = machine(text)
    cpus = [d for d in topology.devices if d.kind is DeviceKind.CPU]
    assert len(cpus) == 2
    assert [
        topology.links_between[gpu.name, f"n0/cpu{gpu.index // 4}"][0].kind for gpu in topology.gpus
    ] == [LinkKind.PCIE] * 8


def test_gpus_without_affinity_go_to_one_cpu_and_a_note_says_so() -> None:
    topology = machine(alike("NV4", 4).replace("0-31 0", "N/A N/A"))
    assert sum(d.kind is DeviceKind.CPU for d in topology.devices) == 1
    assert any("Nothing shows which CPU" in note for note in topology.notes)


def test_a_machine_agrees_with_its_own_table() -> None:
    for text in (TWO_SOCKETS, alike("NV18", 8), alike("NV4", 4)):
        assert compare_with_matrix(machine(text), parse_topo_matrix(text, "mail")) == ()


@requires_shared_data
def test_every_real_table_gives_a_machine_that_agrees_with_it() -> None:
    for path in sorted(FILES.glob("*.txt")):
        matrix = parse_topo_matrix(path.read_text("utf-8"), path.name)
        topology = topology_of_matrix(matrix, path.stem)
        validate(topology)
        assert compare_with_matrix(topology, matrix) == (), path.name
        assert len(topology.nics) == len(matrix.nics)


@requires_shared_data
def test_a_dgx1_has_its_hybrid_cube_mesh() -> None:
    path = FILES / "dgx1v-v100x8-4ib.txt"
    links = nvlinks(machine(path.read_text("utf-8")))
    assert len(links) == 32
    assert {
        sum(lanes for (a, _), lanes in links.items() if a == f"n0/gpu{i}") for i in range(8)
    } == {6}
