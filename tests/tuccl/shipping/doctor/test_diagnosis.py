"""`tuccl doctor`: what keeps a job from its table, and what does not."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from json_reference import schema_of

from lookup_tables.bundles.bundle import load_bundle, read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.host_devices import BundleFacts, HostDevice, HostDeviceKind
from lookup_tables.collective import Collective
from lookup_tables.table import Setting, Shape, StoredSchedule
from probes.nccl_xml.records import GpuLinkRecord, GpuRecord
from probes.nvidia.nvml import NvmlFacts, NvmlGpu
from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls, NvmlFault
from probes.pci.inventory import PcieLink
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.phase_plans import phased_plans
from tests.lookup_tables.tables import make_table
from tests.runtime.builds import compile_native
from tests.runtime.executor_tables import bundle_of, phased_entry
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.tuccl.conftest import Run as RunCommand
from tests.tuccl.measuring.engines.nccl_stand_ins import NATIVE, StandIns
from tests.tuccl.shipping import form_readers
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, ship_entries
from tests.tuccl.shipping.job_roots import PROFILE, run_of_one_rank, unloadable
from tests.tuccl.shipping.lost_bundles import LOST, lose_bundle
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.errors import UsageError
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.runtime import EXECUTOR_NAME
from tuccl.shipping import shipment
from tuccl.shipping.doctor.diagnosis import Diagnosis, check_variables, diagnose
from tuccl.shipping.doctor.findings import Severity
from tuccl.shipping.doctor.host_checks import (
    check_cores,
    check_direct_access,
    check_machine,
    check_nvlinks,
    check_shared_memory,
)
from tuccl.shipping.doctor.job_view import JobView
from tuccl.shipping.environment_file import ShippedExecutor
from tuccl.shipping.forms import Form
from tuccl.shipping.manifest import MANIFEST_NAME, manifest_text, read_manifest
from tuccl.shipping.shipment import ship


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_ins: StandIns) -> None:
    """A host without GPUs, and with the stand-in as its NCCL."""
    for name in list(os.environ):
        if name.startswith(("NCCL_", "TUCCL_")) or name == "LD_PRELOAD":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUCCL_SYSFS", str(tmp_path / "no-sysfs"))
    monkeypatch.setenv(LIBRARY_VARIABLE, str(stand_ins.nccl))


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    ship(run_of_one_rank(tmp_path / "run"), tmp_path / "shipped", forms=[Form.NCCL_CONF])
    return tmp_path / "shipped"


def severities(found: Diagnosis, check: str) -> list[Severity]:
    return [each.severity for each in found.findings if each.check == check]


def errors(found: Diagnosis) -> list[str]:
    return [each.text for each in found.findings if each.severity is Severity.ERROR]


def warnings(found: Diagnosis) -> list[str]:
    return [each.text for each in found.findings if each.severity is Severity.WARNING]


def measured_with(directory: Path, base: dict[str, str] | None) -> None:
    """Let the table have been measured with these variables of NCCL."""
    manifest = read_manifest(directory)
    assert manifest is not None
    changed = manifest.model_copy(update={"base": base})
    (directory / MANIFEST_NAME).write_text(manifest_text(changed))


def sourced(directory: Path) -> dict[str, str]:
    """The environment of a shell that has sourced the table."""
    return form_readers.sourced(directory / "tuccl.env", **os.environ)


@requires_shared_data
def test_each_variable_in_which_a_job_differs_from_the_measurement_is_named(shipped: Path) -> None:
    case = SHARED_DATA / "public_cases" / "doctor-variables.env"
    variables = dict(line.split("=", 1) for line in case.read_text().splitlines())
    measured_with(shipped, {})
    for directory in (None, shipped):
        found = diagnose(directory, {**sourced(shipped), **variables})
        said = [text for text in warnings(found) if "measured without it" in text]
        assert [text.split("=")[0] for text in said] == sorted(variables)
        assert not severities(found, "variables").count(Severity.OK)


def test_a_job_is_to_have_what_its_site_had_when_the_table_was_measured(shipped: Path) -> None:
    measured_with(shipped, {"NCCL_IB_TC": "106", "NCCL_CROSS_NIC": "1"})
    said = warnings(diagnose(None, {**sourced(shipped), "NCCL_CROSS_NIC": "0"}))
    assert "NCCL_IB_TC is not set, and the table was measured with NCCL_IB_TC=106" in said
    assert (
        "NCCL_CROSS_NIC=0 is set in the environment, and the table was measured with "
        "NCCL_CROSS_NIC=1"
    ) in said
    well = diagnose(
        None, {**sourced(shipped), "NCCL_IB_TC": "106", "NCCL_CROSS_NIC": "1", "NCCL_DEBUG": "INFO"}
    )
    assert severities(well, "variables") == [Severity.OK]


def test_variables_are_named_where_the_table_does_not_say_what_it_was_measured_with(
    shipped: Path,
) -> None:
    measured_with(shipped, None)
    assert severities(diagnose(None, sourced(shipped)), "variables") == [Severity.OK]
    set_here = {"NCCL_P2P_DISABLE": "1", "NCCL_CHUNK_SIZE": "1048576", "NCCL_DEBUG": "INFO"}
    for directory in (None, shipped):
        found = diagnose(directory, {**sourced(shipped), **set_here})
        assert found.loads
        assert severities(found, "variables") == [Severity.NOTE]
        (said,) = [each.text for each in found.findings if each.check == "variables"]
        assert said.startswith("NCCL_CHUNK_SIZE, NCCL_P2P_DISABLE: set here, and not compared")


def test_a_job_here_loads_a_shipped_table(shipped: Path) -> None:
    found = diagnose(shipped)
    assert found.loads
    assert warnings(found) == []
    assert severities(found, "NCCL") == [Severity.OK]
    (plugin,) = [each.text for each in found.findings if each.check == "plugin"]
    assert plugin.endswith("NCCL 2.28.9 loads it by ABI v5")


def test_a_directory_from_the_future_tells_of_a_wrong_clock(shipped: Path) -> None:
    ahead_s = time.time() + 3600
    os.utime(shipped / "tuccl.env", (ahead_s, ahead_s))
    found = diagnose(shipped)
    assert found.loads
    (text,) = warnings(found)
    assert text.startswith(f"{shipped}/tuccl.env is 36")
    assert text.endswith("s ahead of this host's clock: times in histories and logs mislead")


def test_the_environment_is_looked_at_where_no_directory_is_named(shipped: Path) -> None:
    assert diagnose(None, sourced(shipped)).loads
    found = diagnose(None)
    assert not found.loads
    assert errors(found) == [
        "TUCCL_BUNDLE names no table",
        "NCCL_TUNER_PLUGIN is not set: NCCL loads no plugin of TuCCL",
    ]


def test_a_table_in_nccls_own_file_counts(shipped: Path) -> None:
    found = diagnose(None, {**os.environ, "NCCL_CONF_FILE": str(shipped / "nccl.conf")})
    assert found.loads
    (text,) = [each.text for each in found.findings if each.check == "conf files"]
    assert text.startswith(f"{shipped}/nccl.conf gives NCCL_TUNER_PLUGIN, TUCCL_BUNDLE")
    missing = diagnose(shipped, {**os.environ, "NCCL_CONF_FILE": "/nowhere"})
    assert missing.loads
    assert "which is not a file" in warnings(missing)[0]


@pytest.mark.parametrize(
    ("variables", "said", "mend"),
    [
        ({"NCCL_ALGO": "Ring"}, "overrules any table", "unset NCCL_ALGO"),
        ({"NCCL_PROTO": "LL"}, "overrules any table", "unset NCCL_PROTO"),
        ({"NCCL_TUNER_PLUGIN": "none"}, "keeps TuCCL's plugin out", "unset NCCL_TUNER_PLUGIN"),
        ({"NCCL_TUNER_PLUGIN": "/no/libnccl-tuner-tuccl.so"}, "is not there", "ship"),
        ({"NCCL_TUNER_PLUGIN": ""}, "is not set", "source tuccl.env"),
        ({"TUCCL_BUNDLE_CRC": "00000001"}, "is demanded by the environment: ranks do not", "ship"),
        ({"TUCCL_BUNDLE_CRC": "x"}, "TUCCL_BUNDLE_CRC=x is demanded", "source tuccl.env again"),
        ({"TUCCL_BUNDLE": "/nowhere"}, "cannot read /nowhere: No such file", "ship there again"),
        ({"TUCCL_CONTROL": "/x"}, "for tuccl's own measuring", "unset TUCCL_CONTROL"),
    ],
)
def test_what_keeps_a_job_from_its_table_is_an_error_with_its_remedy(
    shipped: Path, variables: dict[str, str], said: str, mend: str
) -> None:
    found = diagnose(None, {**sourced(shipped), **variables})
    assert not found.loads
    (wrong,) = [each for each in found.findings if each.severity is Severity.ERROR]
    assert said in wrong.text
    assert mend in wrong.mend


@pytest.mark.parametrize(
    ("variables", "said", "mend"),
    [
        ({"NCCL_MAX_NCHANNELS": "4"}, "measured without it", "unset NCCL_MAX_NCHANNELS"),
        ({"NCCL_NTHREADS": "64"}, "with NCCL_NTHREADS=256", "export NCCL_NTHREADS=256"),
        ({"NCCL_BUFFSIZE": ""}, "NCCL_BUFFSIZE is not set", "export NCCL_BUFFSIZE=1048576"),
        ({"TUCCL_BUNDLE_CRC": ""}, "no sum is demanded", "export TUCCL_BUNDLE_CRC="),
        ({"TUCCL_NCCL": "2.27.5"}, "measured with NCCL 2.27.5", "tuccl retune"),
        (
            {"LD_PRELOAD": "/no/such.so"},
            "/no/such.so is not loaded (cannot open shared object file)",
            "take it out of LD_PRELOAD",
        ),
        ({"LD_PRELOAD": "/etc/passwd"}, "is not loaded (invalid ELF header)", "take it out"),
    ],
)
def test_what_costs_a_job_something_is_a_warning(
    shipped: Path, variables: dict[str, str], said: str, mend: str
) -> None:
    assert set(PROFILE) == {"NCCL_NTHREADS", "NCCL_BUFFSIZE"}
    found = diagnose(None, {**sourced(shipped), **variables})
    assert found.loads
    (costs,) = [each for each in found.findings if each.severity is Severity.WARNING]
    assert said in costs.text
    assert mend in costs.mend


def test_a_preloaded_path_may_have_the_loaders_own_words(shipped: Path) -> None:
    # $LIB is lib, lib64 or lib/x86_64-linux-gnu, as the loader was built.
    found = diagnose(None, {**sourced(shipped), "LD_PRELOAD": "/usr/$LIB/libm.so.6"})
    assert (found.loads, warnings(found)) == (True, [])


@pytest.mark.parametrize(
    ("version", "loads", "said"),
    [
        ("22105", True, "NCCL 2.21.5 loads it by ABI v2"),
        ("22304", True, "loads it by ABI v3"),
        ("22703", False, "NCCL 2.27.3 mangles a path in NCCL_TUNER_PLUGIN"),
        ("23203", True, "NCCL 2.32.3 loads it by ABI v6"),
        ("23206", True, "NCCL 2.32.6 loads it by ABI v7"),
    ],
)
def test_each_nccl_loads_the_newest_abi_that_it_knows(
    shipped: Path, monkeypatch: pytest.MonkeyPatch, version: str, loads: bool, said: str
) -> None:
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", version)
    found = diagnose(shipped)
    assert found.loads is loads
    (plugin,) = [each for each in found.findings if each.check == "plugin"]
    assert said in plugin.text
    if not loads:
        bare = {
            **sourced(shipped),
            "LD_LIBRARY_PATH": str(shipped),
            "NCCL_TUNER_PLUGIN": "libnccl-tuner-tuccl.so",
        }
        assert diagnose(None, bare).loads


def test_an_nccl_without_tuners_is_an_error_and_an_unknown_one_is_not(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", "21903")
    found = diagnose(shipped)
    assert "NCCL 2.19.3, whose tuner ABI the plugin does not speak" in errors(found)[0]
    monkeypatch.setenv(LIBRARY_VARIABLE, "/nowhere/libnccl.so.2")
    found = diagnose(shipped)
    assert found.loads
    assert severities(found, "NCCL") == [Severity.NOTE]
    (plugin,) = [each.text for each in found.findings if each.check == "plugin"]
    assert plugin.endswith("tuner ABI v2, v3, v4, v5, v6, v7")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"GLIBC_2.", b"GLIBC_9."))


def elsewhere(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[18:20] = (183 if data[18] == 62 else 62).to_bytes(2, "little")
    path.write_bytes(data)


def unnamed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"ncclTunerPlugin", b"ncclTunerPlugout"[:15]))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "is damaged"),
        (newer, "needs glibc 9."),
        (elsewhere, ", this host is "),
        (unnamed, "has no tuner ABI that this NCCL loads (it has none)"),
        (lambda path: path.write_text("#!"), "is damaged"),
    ],
)
def test_a_plugin_that_nccl_cannot_load_is_an_error(
    shipped: Path, damage: Callable[[Path], object], said: str
) -> None:
    damage(shipped / "libnccl-tuner-tuccl.so")
    found = diagnose(shipped)
    (wrong,) = errors(found)
    assert said in wrong
    assert "files differ from the manifest: libnccl-tuner-tuccl.so" in warnings(found)[0]


def test_an_executor_that_ends_every_process_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = unloadable(tmp_path)
    monkeypatch.setattr(shipment, "shipped_executor", lambda *_: ShippedExecutor(library, None))
    target = tmp_path / "shipped"
    ship(run_of_one_rank(tmp_path / "run"), target)
    assert diagnose(target).loads, "tuccl.env does not preload it"
    forced = {**sourced(target), "LD_PRELOAD": str(target / "libtuccl-executor.so")}
    (wrong,) = errors(diagnose(None, forced))
    assert "ends every process that preloads it" in wrong
    assert "GLIBC_9" in wrong


def test_schedules_without_the_executor_are_noted(stand_ins: StandIns, tmp_path: Path) -> None:
    table, _ = tuned(FOUR_GPUS)
    first, *_ = table.entries
    entry = replace(first, key=replace(first.key, fingerprint="test"))
    for loaded in (False, True):
        folder = tmp_path / str(loaded)
        ship_entries(folder, stand_ins, entry, executor=loaded, schedules=table.schedules)
        found = diagnose(folder)
        assert severities(found, "executor") == [Severity.OK if loaded else Severity.NOTE]
    shutil.copy(unloadable(tmp_path), folder / "libtuccl-executor.so")
    found = diagnose(folder)
    (costs,) = [each.text for each in found.findings if each.check == "executor"]
    assert severities(found, "executor") == [Severity.WARNING]
    assert "here it cannot be" in costs
    assert "GLIBC_9" in costs


def test_who_may_read_and_replace_the_files_is_told(shipped: Path) -> None:
    (shipped / "libnccl-tuner-tuccl.so").chmod(0o600)
    shipped.chmod(0o777)
    found = diagnose(shipped)
    (private,) = [each for each in found.findings if "jobs of other users cannot read" in each.text]
    assert "libnccl-tuner-tuccl.so" in private.text
    assert private.mend == f"chmod -R a+rX {shipped}"
    closed = shipped.parent
    closed.chmod(0o700)
    (entered,) = [each for each in diagnose(shipped).findings if "cannot enter" in each.text]
    assert str(closed) in entered.text
    assert any("other users may replace shipped in" in text for text in warnings(found))


def test_shared_memory_is_looked_at(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (finding,) = check_shared_memory(tmp_path)
    assert finding.severity is Severity.WARNING
    assert "mode 755" in finding.text
    tmp_path.chmod(0o1777)
    (finding,) = check_shared_memory(tmp_path)
    assert finding.severity is Severity.OK
    (finding,) = check_shared_memory(tmp_path / "none")
    assert "No such file" in finding.text


@pytest.fixture
def small_shared_memory(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "shm"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_little_shared_memory_is_a_warning(small_shared_memory: Path) -> None:
    (finding,) = check_shared_memory(small_shared_memory)
    assert finding.severity is Severity.WARNING
    assert "1 MiB of 1 MiB are free" in finding.text
    assert "--shm-size 1g" in finding.mend


def add_gpu(sysfs: Path, number: int, model: str, kind: str = "0x030200") -> None:
    folder = sysfs / "bus" / "pci" / "devices" / f"0000:0{number}:00.0"
    folder.mkdir(parents=True)
    vendor, device = model.split(":")
    for name, text in (("vendor", f"0x{vendor}"), ("device", f"0x{device}"), ("class", kind)):
        (folder / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("gpus", "severity", "said"),
    [
        ([], Severity.NOTE, "no GPU is seen here"),
        ([("10de:2335", "0x030200")] * 4, Severity.OK, "4 GPUs here of a model of the table"),
        ([("10de:2335", "0x030200")] * 2, Severity.WARNING, "for 4 GPUs a node, 2 are here"),
        ([("10de:20b2", "0x030200")], Severity.ERROR, "GPU 10de:20b2 here, none of 10de:2335"),
        ([("1002:74a1", "0x120000")], Severity.ERROR, "GPU 1002:74a1 here"),
        ([("1002:13c0", "0x030000")], Severity.NOTE, "no GPU is seen here"),
        ([("10de:1eb8", "0x030000")], Severity.ERROR, "GPU 10de:1eb8 here"),
    ],
)
def test_another_machine_is_an_error_by_the_plugins_rules(
    tmp_path: Path, stand_ins: StandIns, gpus: list[tuple[str, str]], severity: Severity, said: str
) -> None:
    folder = ship_entries(tmp_path / "d", stand_ins, all_gather_entry(8, shape=FOUR_GPUS))
    bundle = load_bundle(next(folder.glob("bundle-*")))
    object.__setattr__(bundle, "gpu_models", ("10de:2335",))
    sysfs = tmp_path / "sys"
    for number, (model, kind) in enumerate(gpus):
        add_gpu(sysfs, number, model, kind)
    (finding,) = check_machine(bundle, {"TUCCL_SYSFS": str(sysfs)})
    assert finding.severity is severity
    assert said in finding.text


@pytest.mark.parametrize(("version", "warned"), [("22809", True), ("23007", False)])
def test_an_nccl_that_asks_about_no_chunks_is_a_warning_where_entries_have_some(
    tmp_path: Path, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, version: str, warned: bool
) -> None:
    entry = all_gather_entry(8, shape=FOUR_GPUS)
    assert entry.builtin is not None
    chunked = replace(entry, builtin=replace(entry.builtin, chunk_bytes=1 << 17))
    folder = ship_entries(tmp_path / "d", stand_ins, chunked)
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", version)
    said = "1 entry has a size of chunks, which NCCL 2.28.9 does not ask about"
    assert any(said in text for text in warnings(diagnose(folder))) is warned


@pytest.mark.parametrize(("gpus", "severity"), [(4, Severity.OK), (3, Severity.ERROR)])
def test_a_host_that_lacks_devices_is_another_machine(
    tmp_path: Path, stand_ins: StandIns, gpus: int, severity: Severity
) -> None:
    folder = ship_entries(tmp_path / "d", stand_ins, all_gather_entry(8, shape=FOUR_GPUS))
    bundle = load_bundle(next(folder.glob("bundle-*")))
    host = (HostDevice(HostDeviceKind.GPU, "10de:2335", count=4),)
    bundle = replace(bundle, gpu_models=("10de:2335",), facts=BundleFacts((host,)))
    for number in range(gpus):
        add_gpu(tmp_path / "sys", number, "10de:2335")
    (finding,) = check_machine(bundle, {"TUCCL_SYSFS": str(tmp_path / "sys")})
    assert finding.severity is severity
    lacking = "another machine: 3 GPUs 10de:2335 here, 4 on its hosts"
    assert (lacking in finding.text) == (severity is Severity.ERROR)


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ((18, 18, 18, 18), "the GPUs that NVML shows have the NVLinks"),
        # A container has two of the GPUs.
        ((18, 18), "the GPUs that NVML shows have the NVLinks"),
        (
            (18, 12),
            "3 GPUs 10de:2335 with 18 or more NVLinks here, 4 on its hosts: 0000:01:00.0 has 12",
        ),
        ((), ""),
    ],
)
def test_nvlinks_are_compared_with_those_of_the_tables_hosts(
    tmp_path: Path, stand_ins: StandIns, links: tuple[int, ...], said: str
) -> None:
    folder = ship_entries(tmp_path / "d", stand_ins, all_gather_entry(8, shape=FOUR_GPUS))
    host = (HostDevice(HostDeviceKind.GPU, "10de:2335", count=4, nvlinks=18),)
    bundle = replace(load_bundle(next(folder.glob("bundle-*"))), facts=BundleFacts((host,)))
    for number in range(4):
        add_gpu(tmp_path / "sys", number, "10de:2335")
    gpus = tuple(
        NvmlGpu(
            number, f"0000:0{number}:00.0", "H200", "", 0, PcieLink(0, 0),
            GpuRecord(number, None, 90, (GpuLinkRecord("nvlink", "s", "068000", count, 0),)),
        )
        for number, count in enumerate(links)
    )  # fmt: skip
    environment = {"TUCCL_SYSFS": str(tmp_path / "sys")}
    found = list(check_nvlinks(bundle, environment, lambda **_: NvmlFacts(True, gpus=gpus)))
    assert [said in finding.text for finding in found] == ([True] if said else [])
    assert all((each.severity is Severity.OK) == ("have the NV" in said) for each in found)


class Nvml(NvmlCalls):
    """NVML of a host whose first GPU reaches no other."""

    def __init__(self, gpus: int, alone: int) -> None:
        self._gpus, self._alone = gpus, alone

    def start(self) -> None:
        if self._gpus == 0:
            raise NvmlCallError(next(iter(NvmlFault)), "no library")

    def stop(self) -> None:
        pass

    def gpu_count(self) -> int:
        return self._gpus

    def may_access(self, gpu: int, peer: int) -> bool:
        return self._alone not in {gpu, peer}


def test_cores_are_counted_for_the_lanes_of_schedules() -> None:
    """All_reduce on 2 x 4 GPUs: a plan of two lanes, and the same of four for larger calls."""
    plan = phased_plans(Collective.ALL_REDUCE, 2, 4)[0]
    laned = [plan.with_lanes(lanes) for lanes in (2, 4)]
    schedules = [
        StoredSchedule(f"{number}", "", "", compile_program(p)) for number, p in enumerate(laned)
    ]
    entries = [
        phased_entry(p, schedule, sizes)
        for p, schedule, sizes in zip(laned, schedules, ((1024, 2047), (2048, 4096)), strict=True)
    ]

    def found(cores: int, of_host: int | None = None) -> list[tuple[Severity, str]]:
        bundle = read_bundle(bundle_of(entries, schedules), "test")
        checked = check_cores(bundle, frozenset(range(cores)), of_host)
        return [(each.severity, each.text + each.mend) for each in checked]

    assert found(24) == [(Severity.OK, "24 cores drive the 4 lanes of its schedules")]
    for cores, lacking in ((23, "1 entry"), (15, "2 entries")):
        ((severity, text),) = found(cores)
        assert severity is Severity.WARNING
        assert text.startswith(f"{lacking} by schedules of up to 4 lanes: a job on the {cores} ")
        assert "give a job 24 cores a node" in text
    # A process that is bound may be a rank of a job whose other ranks have cores of their own.
    ((severity, text),) = found(6, of_host=64)
    assert severity is Severity.NOTE
    assert text.startswith("6 of 64 cores are seen here")
    assert "fewer than 6 for each" in text
    assert found(23, of_host=23)[0][0] is Severity.WARNING


def test_schedules_ask_for_cores_only_where_the_executor_runs_them(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuccl.shipping.doctor.diagnosis.own_cores", lambda: frozenset({0}))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    plan = phased_plans(Collective.ALL_REDUCE, 2, 4)[0].with_lanes(2)
    schedule = StoredSchedule("0", "", "", compile_program(plan))
    entry = phased_entry(plan, schedule)
    entry = replace(entry, key=replace(entry.key, fingerprint="test"))
    for loaded in (False, True):
        folder = tmp_path / str(loaded)
        ship_entries(folder, stand_ins, entry, executor=loaded, schedules=(schedule,))
        found = diagnose(folder)
        assert severities(found, "cores") == ([Severity.WARNING] if loaded else [])
        (said,) = [each.text for each in found.findings if each.check == "table"]
        assert said.endswith(" (1 with schedules, which run only with the executor)")


def test_direct_access_is_known_from_nvml_alone() -> None:
    (unknown,) = check_direct_access(Nvml(0, 0))
    assert (unknown.severity, "not known" in unknown.text) == (Severity.NOTE, True)
    (all_of_them,) = check_direct_access(Nvml(4, -1))
    assert (all_of_them.severity, "6 pairs" in all_of_them.text) == (Severity.OK, True)
    (without,) = check_direct_access(Nvml(4, 0))
    assert without.severity is Severity.WARNING
    assert "GPUs 0-1, 0-2, 0-3 have no direct access" in without.text


@pytest.mark.parametrize("place", ["nowhere", "run"])
def test_what_is_no_shipped_directory_is_refused(shipped: Path, tmp_path: Path, place: str) -> None:
    with pytest.raises(UsageError):
        diagnose(tmp_path / place)
    with (shipped / "tuccl.env").open("a") as file:
        file.write("exit 3\n")
    with pytest.raises(UsageError, match="cannot be sourced"):
        diagnose(shipped)


def test_the_command_says_so_in_its_exit_code(run_inside: RunCommand, shipped: Path) -> None:
    done = run_inside("doctor", "shipped")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "a job here would load the table"
    os.environ["NCCL_ALGO"] = "Ring"
    try:
        found = run_inside("doctor", "shipped", "--json")
        shown = run_inside("doctor", "shipped").stdout
    finally:
        del os.environ["NCCL_ALGO"]
    assert found.returncode == 1
    document = json.loads(found.stdout)
    schema = schema_of("doctor")
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert not document["loads"]
    assert document["nccl"]["version"] == "2.28.9"
    assert "    mend: unset NCCL_ALGO\n" in shown
    assert "would not load the table, or not follow it: 1 error" in shown
    refused = run_inside("doctor", "nowhere")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("missing", "No such file or directory"),
        ("truncated", "damaged: 100 bytes instead of"),
        ("another", "is demanded"),
    ],
)
def test_a_bundle_that_cannot_be_used_is_an_error_of_its_directory(
    run_inside: RunCommand, shipped: Path, tmp_path: Path, damage: str, said: str
) -> None:
    if damage in LOST:
        bundle = lose_bundle(shipped, damage)
    else:
        (bundle,) = shipped.glob("bundle-*.tuccl")
        ship(run_of_one_rank(tmp_path / "other", {"NCCL_NTHREADS": "64"}), tmp_path / "others")
        (other,) = (tmp_path / "others").glob("bundle-*.tuccl")
        shutil.copy(other, bundle)
    done = run_inside("doctor", "shipped", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert not document["loads"]
    (text,) = [each["text"] for each in document["findings"] if each["severity"] == "error"]
    assert str(bundle) in text
    assert said in text
    (host,) = json.loads(run_inside("ship", "shipped", "--check", "--json").stdout)["hosts"]
    assert (host["failure"], host["diagnosis"]["loads"]) == ("", False)


@pytest.mark.parametrize(
    ("variables", "loads"),
    [
        ({}, True),
        ({"NCCL_TUNER_PLUGIN": "none"}, False),
        ({"TUCCL_BUNDLE_CRC": "00000001"}, False),
        ({"TUCCL_BUNDLE": "/nowhere"}, False),
        ({"NCCL_NTHREADS": "64"}, True),
    ],
)
def test_a_job_does_what_the_verdict_says(
    shipped: Path, stand_ins: StandIns, tmp_path: Path, variables: dict[str, str], loads: bool
) -> None:
    job = compile_native(tmp_path / "job", [NATIVE / "start_communicator.c"], "-ldl")
    environment = {**sourced(shipped), **variables}
    logged = {"NCCL_DEBUG_FILE": f"{tmp_path}/log.%p", "LD_LIBRARY_PATH": str(stand_ins.folder)}
    subprocess.run([job], env={**environment, **logged}, check=False)
    text = "".join(log.read_text() for log in tmp_path.glob("log.*"))
    assert ("1 entries for 1 ranks" in text) is loads
    assert diagnose(None, environment).loads is loads


def test_what_the_executor_sets_is_needed_without_it_alone() -> None:
    profile = {"NCCL_MIN_CTAS": "32", "NCCL_NTHREADS": "256"}
    settings = (Setting(Shape(4, 1, 4), "NCCL_MIN_CTAS"),)
    table = make_table([], gpu_models=(), profile=profile, settings=settings)
    bundle = read_bundle(bundle_bytes(table), "b")

    def said(**environment: str) -> list[str]:
        seen = {name: (value, "the environment") for name, value in environment.items()}
        job = JobView(environment, seen, bundle, "")
        found = check_variables(job, None)
        return [each.text for each in found if each.severity is not Severity.OK]

    executor = {"LD_PRELOAD": f"/t/{EXECUTOR_NAME} /x.so", "NCCL_NTHREADS": "256"}
    assert said(**executor) == []
    assert said(**executor, NCCL_MIN_CTAS="32") == []
    (other,) = said(**executor, NCCL_MIN_CTAS="16")
    assert other.startswith("NCCL_MIN_CTAS=16 is set in the environment")
    assert other.endswith("measured with NCCL_MIN_CTAS=32")
    assert said(NCCL_NTHREADS="256") == [
        "NCCL_MIN_CTAS is not set, and the table was measured with NCCL_MIN_CTAS=32"
    ]
