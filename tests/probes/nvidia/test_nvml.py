"""GPUs, NVLinks and C2C by NVML: recorded sessions, and a real shared library through ctypes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.nccl_xml.records import GpuLinkRecord, GpuRecord, read_records
from probes.nvidia.nvml import NvmlFacts, read_nvml, visible_gpus
from probes.nvidia.nvml_links import HIDDEN, pci_address
from probes.pci.inventory import PcieLink
from tests.probes.nvidia.nvml_session import HIDDEN_SWITCH, RecordedNvml, session
from tests.probes.nvidia.nvml_stand_in import build_nvml, read_scenes
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError

NV18 = GpuLinkRecord("nvlink", HIDDEN, "068000", 18, 0)
A100_LINK = {"p2p": True, "up": True, "type": "gpu"}


def read(
    recording: dict[str, Any],
    environment: Mapping[str, str] | None = None,
    classes: Mapping[str, str] | None = None,
) -> NvmlFacts:
    nvml = RecordedNvml(recording)
    facts = read_nvml(nvml, environment or {}, classes)
    assert not nvml.running
    return facts


def sentences(facts: NvmlFacts) -> list[str]:
    return [gap.sentence() for gap in facts.gaps]


def test_four_h200_of_a_virtual_machine() -> None:
    facts = read(session())
    assert facts.available
    assert facts.driver == "580.159.04"
    assert facts.gaps == ()
    assert facts.records == {
        f"0000:00:0{6 + dev}.0": GpuRecord(dev, dev, 90, (NV18,)) for dev in range(4)
    }
    first = facts.gpus[0]
    assert (first.name, first.memory_bytes) == ("NVIDIA H200", 150754820096)
    assert first.pcie == PcieLink(32.0, 16)


@requires_shared_data
def test_records_equal_those_of_nccls_own_dump() -> None:
    path = SHARED_DATA / "replay" / "h200x4_topo.xml"
    (cpu,) = read_records(path.read_text(), path.name, [])
    dumped = {pci.bus_id: pci.gpu for pci in cpu.pcis if pci.gpu}
    assert read(session()).records == dumped


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.1", "0000:3b:00.1"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("FFFFFFFF:FF:FF.0", HIDDEN),
        ("FFFFFFF:FF:FF.0", HIDDEN),
    ],
)
def test_addresses_as_sysfs_writes_them(written: str, address: str) -> None:
    assert pci_address(written) == address


@pytest.mark.parametrize("written", ["", "3b:00.0", "0000:3b:00.9", "0000:3b:00.0\n0", "xyz"])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a PCI address"):
        pci_address(written)


def test_direct_links_and_visible_switches_are_counted_by_other_end_in_order_of_links() -> None:
    recording = session()
    gpus = recording["gpus"] = recording["gpus"][:2]
    gpus[0]["compute_capability"] = gpus[1]["compute_capability"] = 80
    to_switch = {**HIDDEN_SWITCH, "address": "00000000:0A:00.0"}
    gpus[0]["links"] = [A100_LINK | {"address": "00000000:00:07.0"}, to_switch] * 6
    gpus[1]["links"] = [A100_LINK | {"address": "00000000:00:06.0"}] * 14
    facts = read(recording, classes={"0000:00:06.0": "030000"})
    assert facts.records["0000:00:06.0"].links == (
        GpuLinkRecord("nvlink", "0000:00:07.0", "030200", 6, 0),
        GpuLinkRecord("nvlink", "0000:0a:00.0", "068000", 6, 0),
    )
    # An Ampere GPU has 12, NCCL asks for no more.
    assert facts.records["0000:00:07.0"].links == (
        GpuLinkRecord("nvlink", "0000:00:06.0", "030000", 12, 0),
    )


def test_links_to_a_power9_and_c2c_to_a_grace() -> None:
    recording = session()
    power, grace = recording["gpus"][:2]
    recording["gpus"] = [power, grace]
    power["compute_capability"] = 70
    power["links"] = [{**HIDDEN_SWITCH, "type": "cpu", "address": "00000004:00:01.0"}] * 3
    grace["links"] = []
    grace["c2c"] = [[True, 45000]] * 9 + [[False, 0]]
    facts = read(recording)
    assert facts.records["0000:00:06.0"].links == (
        GpuLinkRecord("nvlink", "0004:00:01.0", "068001", 3, 0),
    )
    assert facts.records["0000:00:07.0"].links == (GpuLinkRecord("c2c", "", "", 9, 45000),)


def test_an_older_driver_without_remote_types_is_helped_by_addresses_and_classes() -> None:
    recording = session()
    recording["gpus"] = recording["gpus"][:1]
    untold = {**HIDDEN_SWITCH, "type": {"fault": "absent"}}
    recording["gpus"][0]["links"] = [
        untold,
        {**untold, "address": "00000000:0A:00.0"},
        {**untold, "address": "00000000:0B:00.0"},
        {**HIDDEN_SWITCH, "address": {"fault": "absent"}},
        {**untold, "address": {"fault": "absent", "words": "Not Supported"}},
    ]
    facts = read(recording, classes={"0000:0a:00.0": "068000"})
    assert facts.records["0000:00:06.0"].links == (
        GpuLinkRecord("nvlink", HIDDEN, "068000", 2, 0),
        GpuLinkRecord("nvlink", "0000:0a:00.0", "068000", 1, 0),
    )
    assert sentences(facts) == [
        (
            "GPU 0 (0000:00:06.0): NVLink 2: it leads to 0000:0b:00.0, and neither NVML nor sysfs "
            "says what that is."
        ),
        "GPU 0 (0000:00:06.0): NVLink 4: NVML reports nothing (Not Supported).",
    ]


def test_unreadable_links_do_not_exclude_the_gpu() -> None:
    recording = session()
    gpu = recording["gpus"][0]
    recording["gpus"] = [gpu]
    refused = {"fault": "no permission", "words": "Insufficient Permissions"}
    gpu["links"][2] = {**HIDDEN_SWITCH, "p2p": refused}
    gpu["links"][5] = {**HIDDEN_SWITCH, "up": refused}
    gpu["c2c"] = refused
    gpu["mig"] = refused
    facts = read(recording)
    assert facts.records["0000:00:06.0"].links[0].count == 16
    denied = "Insufficient Permissions"
    where = "GPU 0 (0000:00:06.0)"
    assert sentences(facts) == [
        f"{where}: NVLink 2, 5: NVML reports nothing (Insufficient Permissions).",
        f"{where}: C2C links: NVML reports nothing (Insufficient Permissions).",
        f"{where}: NVML does not report whether MIG is on ({denied}), taken as off.",
    ]


def test_a_link_that_is_down_is_named() -> None:
    recording = session()
    recording["gpus"][3]["links"][7] = {**HIDDEN_SWITCH, "up": False}
    facts = read(recording)
    assert facts.records["0000:00:09.0"].links[0].count == 17
    (gap,) = facts.gaps
    assert gap.where == "GPU 3 (0000:00:09.0)"
    assert gap.what.startswith("link 7 is down: 17 of 18 links; see `nvidia-smi nvlink -s -i 3`")


def test_fewer_links_than_others_of_the_kind_are_named_even_when_none_is_said_to_be_down() -> None:
    recording = session()
    recording["gpus"][3]["links"][7] = {**HIDDEN_SWITCH, "p2p": False}
    facts = read(recording)
    assert facts.records["0000:00:09.0"].links[0].count == 17
    (gap,) = facts.gaps
    assert gap.where == "GPU 3 (0000:00:09.0)"
    assert gap.what.startswith("17 NVLinks, others of its kind have 18; see `nvidia-smi nvlink -s")
    recording["gpus"][3]["name"] = "NVIDIA Other"
    assert read(recording, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).gaps == ()


def test_links_down_on_every_gpu_alike_are_one_gap() -> None:
    recording = session()
    for gpu in recording["gpus"]:
        gpu["links"][16:] = [{**HIDDEN_SWITCH, "up": False}] * 2
    (gap,) = read(recording).gaps
    assert gap.where == "every GPU"
    assert gap.what.startswith("links 16, 17 are down: 16 of 18 links; right for parts sold with")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ([True, True], "MIG is on, and TuCCL tunes whole GPUs; switch it off: `{off}`"),
        ([False, True], "MIG comes on at the next reset, .*take that back: `{off}`"),
        ([True, False], "MIG stays on until the next reset, .*run `{off}` again"),
    ],
)
def test_mig_is_refused_with_the_command_that_ends_it(mode: list[bool], message: str) -> None:
    recording = session()
    recording["gpus"][2]["mig"] = mode
    message = message.format(off="nvidia-smi -i 2 -mig 0")
    with pytest.raises(MachineError, match=rf"GPU 2 \(0000:00:08.0, NVIDIA H200\): {message}"):
        read(recording)
    assert len(read(recording, {"CUDA_VISIBLE_DEVICES": "0,1,3"}).records) == 3
    with pytest.raises(MachineError, match="CUDA_VISIBLE_DEVICES=MIG-1 names a MIG instance"):
        read(recording, {"CUDA_VISIBLE_DEVICES": "MIG-1"})


def test_hidden_gpus_are_named_and_the_order_follows_the_variable() -> None:
    facts = read(session(), {"CUDA_VISIBLE_DEVICES": "3,1"})
    assert {address: record.dev for address, record in facts.records.items()} == {
        "0000:00:09.0": 0,
        "0000:00:07.0": 1,
    }
    assert [gpu.index for gpu in facts.gpus] == [3, 1, 0, 2]
    assert sentences(facts) == [
        (
            "CUDA_VISIBLE_DEVICES=3,1: leaves out GPU 0 (0000:00:06.0), 2 (0000:00:08.0); unset it "
            "to probe the whole host."
        )
    ]


def test_different_gpus_are_numbered_by_address_and_a_gap_says_so() -> None:
    recording = session()
    recording["gpus"][0]["name"] = "NVIDIA A2"
    (message,) = sentences(read(recording))
    assert message.startswith("CUDA_DEVICE_ORDER: not PCI_BUS_ID")
    assert read(recording, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).gaps == ()


def test_gpus_without_direct_access_are_named() -> None:
    assert sentences(read(session() | {"apart": [1, 3]})) == [
        (
            "GPUs 1-3: no direct access (P2P), traffic goes through the host; see `nvidia-smi topo "
            "-p2p w`."
        )
    ]
    assert sentences(read(session() | {"apart": {"fault": "absent"}})) == []


UUIDS = ["GPU-a1", "GPU-a2", "GPU-b"]


@pytest.mark.parametrize(
    ("value", "places"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2,0", (2, 0)),
        (" 1 , 2", (1, 2)),
        ("1,-1,2", (1,)),
        ("0,7,1", (0,)),
        ("1,1", ()),
        ("2x,1", (2, 1)),
        ("NoDevFiles", ()),
        ("GPU-b,GPU-a2", (2, 1)),
        ("GPU-b,GPU-a,GPU-a1", (2,)),
        ("GPU-b,0", (2,)),
        ("0,GPU-b", (0,)),
        ("GPU-b,GPU-b", ()),
    ],
)
def test_visible_gpus_as_cuda_reads_the_variable(
    value: str | None, places: tuple[int, ...]
) -> None:
    assert visible_gpus(value, UUIDS) == places


@pytest.mark.long
@given(st.text(max_size=30) | st.lists(st.sampled_from(["0", "1", "9", *UUIDS])).map(",".join))
def test_visible_gpus_are_always_distinct_gpus(value: str) -> None:
    places = visible_gpus(value, UUIDS)
    assert len(set(places)) == len(places)
    assert set(places) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ("no library", "install the NVIDIA driver"),
        ("no driver", "load the driver"),
        ("version mismatch", "restart the host or reload"),
        ("no permission", "check the rights of /dev/nvidiactl"),
        ("other", "see `nvidia-smi`"),
    ],
)
def test_no_nvml_is_a_gap_with_a_remedy(fault: str, remedy: str) -> None:
    nvml = RecordedNvml({"init": {"fault": fault, "words": "its words"}})
    facts = read_nvml(nvml, {})
    assert not facts.available
    assert facts.records == {}
    (message,) = sentences(facts)
    assert message.startswith("NVML: no answer (its words), so NVLinks are not known: ")
    assert remedy in message


@pytest.mark.parametrize("place", ["gpu", "link", "memory_bytes", "mig", "c2c"])
def test_a_lost_gpu_is_named_and_the_others_are_read(place: str) -> None:
    recording = session()
    lost = {"fault": "GPU lost", "words": "GPU is lost"}
    if place == "gpu":
        recording["gpus"][1] = lost
    elif place == "link":
        recording["gpus"][1]["links"][4] = {**HIDDEN_SWITCH, "type": lost}
    else:
        recording["gpus"][1][place] = lost
    facts = read(recording)
    assert list(facts.records) == ["0000:00:06.0", "0000:00:08.0", "0000:00:09.0"]
    assert sentences(facts) == [
        (
            "GPU 1: left out, NVML says 'GPU is lost': it fell off the bus; see `dmesg | grep -i "
            "xid`, then reset it or restart the host."
        )
    ]


def test_facts_that_nvml_lacks_stay_unknown_and_are_named() -> None:
    recording = session()
    gpu = recording["gpus"][0]
    for fact in ("memory_bytes", "pcie", "mig"):
        gpu[fact] = {"fault": "absent"}
    gpu["name"] = {"fault": "no permission"}
    recording["driver"] = {"fault": "other"}
    recording["gpus"] = [gpu]
    facts = read(recording)
    assert facts.driver == ""
    assert facts.gpus[0].memory_bytes == 0
    assert facts.gpus[0].pcie == PcieLink(0.0, 0)
    assert sentences(facts) == [
        "GPU 0 (0000:00:06.0): NVML does not report its name, memory, PCIe link."
    ]


def test_a_gpu_whose_address_is_none_is_left_out() -> None:
    recording = session()
    recording["gpus"][0]["address"] = "?"
    facts = read(recording)
    assert len(facts.records) == 3
    assert "'?' is not a PCI address" in sentences(facts)[0]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Facts of a real library, read through ctypes, by scene."""
    folder = build_nvml(tmp_path_factory.mktemp("nvml"))
    names = ("", "down", "apart", "lost", "mismatch", "mig", "domain", "joining")
    return read_scenes(folder, "nvml.read_nvml", names)


def test_a_real_library_is_read_through_ctypes(scenes: dict[str, Any]) -> None:
    facts = scenes[""]
    assert facts["available"]
    assert facts["driver"] == "580.1"
    assert facts["gaps"] == []
    first, second = facts["gpus"]
    assert (first["address"], second["address"]) == ("0001:3b:00.0", "0001:3c:00.0")
    assert second["uuid"] == "GPU-1"
    assert second["memory_bytes"] == 150754820096
    assert second["pcie"] == {"gt_per_s": 32.0, "width": 16}
    links = second["record"].pop("links")
    assert second["record"] == {
        "dev": 1,
        "rank": 1,
        "compute_capability": 90,
        "lacks_multicast": False,
    }
    assert [(link["tag"], link["target"], link["count"]) for link in links] == [
        ("nvlink", "0001:06:00.0", 9),
        ("nvlink", "0001:07:00.0", 9),
        ("c2c", "", 9),
    ]
    assert links[2]["mb_per_s"] == 45000


def test_the_nvlink_domain_of_a_real_library(scenes: dict[str, Any]) -> None:
    """As NCCL: not before the fabric manager is done, and not of a board without a cluster."""
    domains = {scene: scenes[scene]["gpus"][1]["domain"] for scene in ("", "domain", "joining")}
    assert domains == {"": "", "domain": f"ab{'00' * 15}/7", "joining": ""}


def test_a_host_is_of_a_domain_if_all_gpus_are_that_cuda_sees() -> None:
    recording = session()
    for gpu in recording["gpus"]:
        gpu["domain"] = "ab/1"
    assert read(recording).domain == "ab/1"
    recording["gpus"][2]["domain"] = ""
    assert read(recording).domain == ""
    assert read(recording, {"CUDA_VISIBLE_DEVICES": "0,1"}).domain == "ab/1"
    assert read(session()).domain == ""


@pytest.mark.parametrize(
    ("scene", "gpus", "message"),
    [
        ("down", 2, "link 7 is down: 17 of 18 links"),
        ("apart", 2, "no direct access (P2P)"),
        ("lost", 1, "left out, NVML says 'GPU is lost'"),
        ("mismatch", 0, "driver and library are of different versions"),
    ],
)
def test_a_real_library_that_fails(
    scenes: dict[str, Any], scene: str, gpus: int, message: str
) -> None:
    assert len(scenes[scene]["gpus"]) == gpus
    (gap,) = scenes[scene]["gaps"]
    assert message in gap["what"]


def test_a_real_library_with_mig(scenes: dict[str, Any]) -> None:
    assert scenes["mig"]["refused"].startswith("GPU 1 (0001:3c:00.0, NVIDIA H200): MIG is on")


def test_no_library_at_all(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    facts = read_scenes(tmp_path, "nvml.read_nvml", [""])[""]
    assert not facts["available"]
    assert "install the NVIDIA driver" in facts["gaps"][0]["what"]
