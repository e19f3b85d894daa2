"""The search for NCCL, and environments that are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.builds import compile_native
from tests.tuccl.measuring.engines.nccl_stand_ins import NATIVE, ROOT
from tuccl.errors import MeasurementError, NcclLibraryError, SeveralNcclsError
from tuccl.measuring.engines.nccl_environment import (
    check_environment,
    check_overruling,
    site_variables,
)
from tuccl.measuring.engines.nccl_library import find_nccl, version_text
from tuccl.measuring.engines.nccl_variables import OVERRULING, PER_PROCESS

MakeNccl = Callable[[str, int], Path]


@pytest.fixture
def make_nccl(tmp_path: Path) -> MakeNccl:
    def make(folder: str, version: int) -> Path:
        source = tmp_path / f"{version}.c"
        source.write_text(
            f"int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}\n", encoding="utf-8"
        )
        target = tmp_path / folder
        target.mkdir(parents=True, exist_ok=True)
        name = "-Wl,-soname,libnccl.so.2"
        return compile_native(target / "libnccl.so.2", [source], "-shared", name)

    return make


WHEEL = "packages/nvidia/nccl/lib"


@pytest.fixture
def make_torch(tmp_path: Path) -> Callable[..., Path]:
    """A package of torch's shape, whose libtorch_cuda.so needs NCCL as the loader finds it."""

    def make(*flags: str, needs_nccl: bool = True) -> Path:
        libraries = tmp_path / "packages" / "torch" / "lib"
        libraries.mkdir(parents=True)
        (libraries.parent / "__init__.py").write_text("raise RuntimeError\n")
        stub, source = tmp_path / "stub.c", tmp_path / "torch.c"
        stub.write_text("int ncclGetVersion(int *v) { return v == 0; }\n")
        source.write_text("int torch_is_here(void) { return 1; }\n")
        compile_native(tmp_path / "libstub.so", [stub], "-shared", "-Wl,-soname,libnccl.so.2")
        needed = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-lstub") if needs_nccl else ()
        return compile_native(libraries / "libtorch_cuda.so", [source], "-shared", *flags, *needed)

    return make


RPATH = ("-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib", "-Wl,--disable-new-dtags")
RUNPATH = ("-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib", "-Wl,--enable-new-dtags")


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No packages but those in `packages`, and a loader's cache that `ldconfig.txt` holds."""
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.setattr(sys, "path", [str(packages)])
    for name in ("torch", "nvidia", "nvidia.nccl"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    cache = tmp_path / "ldconfig.txt"
    cache.touch()
    tool = tmp_path / "bin" / "ldconfig"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\ncat '{cache}'\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return cache


def test_the_named_one_is_taken_whatever_else_is_there(make_nccl: MakeNccl) -> None:
    named, unused = make_nccl("named", 22807), make_nccl("other", 22105)
    found = find_nccl(str(named), {"LD_LIBRARY_PATH": str(unused.parent)})
    assert (found.path, found.version_text, found.source) == (named, "2.28.7", "named")


def test_torch_is_found_and_not_imported(make_nccl: MakeNccl, tmp_path: Path) -> None:
    path = make_nccl("packages/torch/lib", 22809)
    (tmp_path / "packages" / "torch" / "__init__.py").write_text("raise RuntimeError\n")
    found = find_nccl(None, {})
    assert (found.path, found.source) == (path, "in torch")


def test_the_wheel_and_the_loaders_cache_are_found(
    make_nccl: MakeNccl, nothing_installed: Path
) -> None:
    wheel = make_nccl("packages/nvidia/nccl/lib", 22809)
    assert find_nccl(None, {}).path == wheel
    system = make_nccl("system", 22809)
    nothing_installed.write_text(
        f"2 libs found in cache\n\tlibnccl.so.2 (libc6,x86-64) => {system}\n"
        "\tlibnccl.so (libc6,x86-64) => /usr/lib/libnccl.so\n"
    )
    # The same version at two places gives the same figures.
    assert find_nccl(None, {}).path == wheel
    wheel.unlink()
    found = find_nccl(None, {})
    assert (found.path, found.source) == (system, "the loader's cache")


def test_different_ones_are_named_with_the_way_out(
    make_nccl: MakeNccl, nothing_installed: Path
) -> None:
    wheel = make_nccl("packages/nvidia/nccl/lib", 22809)
    system = make_nccl("system", 22803)
    nothing_installed.write_text(f"\tlibnccl.so.2 (libc6,x86-64) => {system}\n")
    with pytest.raises(NcclLibraryError) as error:
        find_nccl(None, {})
    text = str(error.value)
    assert f"2.28.9 in {wheel}" in text
    assert f"2.28.3 in {system}" in text
    assert "name the one that the job loads in TUCCL_NCCL_LIBRARY" in text
    assert "\n" not in text
    assert find_nccl(None, {"TUCCL_NCCL_LIBRARY": str(system)}).path == system


@pytest.mark.parametrize(
    ("flags", "variable", "taken"),
    [
        (RPATH, "", "wheel"),
        (RPATH, "LD_LIBRARY_PATH", "wheel"),  # RPATH comes before it, as in torch's wheels.
        (RUNPATH, "", "wheel"),
        (RUNPATH, "LD_LIBRARY_PATH", "other"),  # And RUNPATH after it.
        (RPATH, "LD_PRELOAD", "other"),
        ((), "LD_LIBRARY_PATH", "other"),
        ((), "", "wheel"),  # Torch preloads what the loader does not find.
    ],
)
def test_of_several_torchs_is_taken_as_the_loader_finds_it(
    make_nccl: MakeNccl,
    make_torch: Callable[..., Path],
    nothing_installed: Path,
    flags: tuple[str, ...],
    variable: str,
    taken: str,
) -> None:
    paths = {"wheel": make_nccl(WHEEL, 22809), "other": make_nccl("other", 22703)}
    make_torch(*flags)
    nothing_installed.write_text(f"\tlibnccl.so.2 (libc6,x86-64) => {paths['other']}\n")
    value = paths["other"] if variable == "LD_PRELOAD" else paths["other"].parent
    found = find_nccl(None, {variable: str(value)} if variable else {})
    assert found.path == paths[taken]
    (left,) = found.others
    assert left.path == paths[{"wheel": "other", "other": "wheel"}[taken]]
    assert found.note == (
        f"NCCL {found.version_text} in {found.path} is used, as this Python's torch loads it, not "
        f"{left.version_text} in {left.path}; to choose another: TUCCL_NCCL_LIBRARY=PATH"
    )
    assert "\n" not in found.note


def test_where_torch_cannot_be_asked_its_own_comes_before_the_wheels(
    make_nccl: MakeNccl, tmp_path: Path
) -> None:
    wheel, unused = make_nccl(WHEEL, 22809), make_nccl("other", 22703)
    here = {"LD_LIBRARY_PATH": str(unused.parent)}
    (tmp_path / "packages" / "torch" / "lib").mkdir(parents=True)
    assert find_nccl(None, here).path == wheel
    own = make_nccl("packages/torch/lib", 22604)
    found = find_nccl(None, here)
    assert found.path == own
    assert [left.version_text for left in found.others] == ["2.28.9", "2.27.3"]
    assert find_nccl(None, {"LD_PRELOAD": str(unused)}).path == unused


@pytest.mark.parametrize("build", ["built in", "without CUDA"])
def test_a_torch_that_loads_none_does_not_decide(
    make_nccl: MakeNccl, make_torch: Callable[..., Path], build: str
) -> None:
    make_nccl(WHEEL, 22809)
    unused = make_nccl("other", 22703)
    library = make_torch(needs_nccl=False)
    if build == "without CUDA":
        library.rename(library.with_name("libtorch_cpu.so"))
    with pytest.raises(SeveralNcclsError, match="different NCCLs here"):
        find_nccl(None, {"LD_LIBRARY_PATH": str(unused.parent)})


def test_a_file_that_nobody_uses_may_be_damaged(make_nccl: MakeNccl, tmp_path: Path) -> None:
    own = make_nccl("packages/torch/lib", 22809)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "libnccl.so.2").write_text("no library")
    found = find_nccl(None, {"LD_LIBRARY_PATH": str(tmp_path / "other")})
    assert (found.path, found.note) == (own, "")


@pytest.mark.parametrize(("variable", "separator"), [("LD_LIBRARY_PATH", ":"), ("LD_PRELOAD", " ")])
def test_the_loaders_variables_are_searched(
    make_nccl: MakeNccl, variable: str, separator: str
) -> None:
    path = make_nccl("somewhere", 23203)
    place = path if variable == "LD_PRELOAD" else path.parent
    found = find_nccl(None, {variable: f"/nonexistent{separator}{place}"})
    assert (found.path, found.source, found.version_text) == (path, variable, "2.32.3")


def test_none_at_all_an_old_one_and_something_else(make_nccl: MakeNccl, tmp_path: Path) -> None:
    with pytest.raises(NcclLibraryError, match=r"no libnccl\.so\.2 in torch"):
        find_nccl(None, {})
    old = make_nccl("old", 22005)
    with pytest.raises(NcclLibraryError, match=r"is NCCL 2\.20\.5.*install 2\.21\.5 or newer"):
        find_nccl(str(old))
    text = tmp_path / "text"
    text.write_text("no library")
    with pytest.raises(NcclLibraryError, match="is not an NCCL that can be loaded"):
        find_nccl(str(text))


def test_version_text() -> None:
    assert [version_text(v) for v in (22105, 22809, 23203)] == ["2.21.5", "2.28.9", "2.32.3"]


@pytest.mark.parametrize("name", [*OVERRULING, *PER_PROCESS])
def test_a_variable_that_decides_is_refused_by_name(name: str) -> None:
    with pytest.raises(MeasurementError, match=f"{name}=7 is set in the environment"):
        check_environment({name: "7"}, {})


def test_what_a_table_was_measured_with_is_no_obstacle() -> None:
    check_environment({"NCCL_MAX_CTAS": "8"}, {"NCCL_MAX_CTAS": "8"})
    said = "NCCL_MAX_CTAS=9 is set in the environment, and the table was measured with NCCL_MAX_CT"
    with pytest.raises(MeasurementError, match=said):
        check_environment({"NCCL_MAX_CTAS": "9"}, {"NCCL_MAX_CTAS": "8"})
    with pytest.raises(MeasurementError, match="and the table was measured without it"):
        check_environment({"NCCL_MAX_CTAS": "8"}, None)


def test_only_our_own_plugin_may_be_named() -> None:
    check_overruling({"NCCL_TUNER_PLUGIN": "/ours.so"}, plugin="/ours.so")
    check_overruling({"NCCL_TUNER_PLUGIN": "", "NCCL_DEBUG": "INFO"})
    with pytest.raises(MeasurementError, match=r"NCCL_TUNER_PLUGIN=/other\.so is set"):
        check_overruling({"NCCL_TUNER_PLUGIN": "/other.so"}, plugin="/ours.so")


def test_nccls_configuration_file_counts_and_is_named(tmp_path: Path) -> None:
    (tmp_path / ".nccl.conf").write_text("# ours\n#NCCL_ALGO=Tree\nNCCL_PROTO = LL # why\nbroken\n")
    with pytest.raises(MeasurementError, match=r"NCCL_PROTO=LL is set in .*\.nccl\.conf"):
        check_overruling({"HOME": str(tmp_path)})
    empty_conf = tmp_path / "other.conf"
    empty_conf.write_text("NCCL_DEBUG=INFO\n")
    check_overruling({"HOME": str(tmp_path), "NCCL_CONF_FILE": str(empty_conf)})


def test_a_sites_variables_are_those_of_shell_and_files_that_calls_depend_on(
    tmp_path: Path,
) -> None:
    conf = tmp_path / "site.conf"
    conf.write_text("NCCL_IB_TC=106\nNCCL_CROSS_NIC=1\nNCCL_DEBUG=INFO\nOTHER=1\n")
    shell = {
        "NCCL_CONF_FILE": str(conf),
        "NCCL_CROSS_NIC": "2",
        "NCCL_BUFFSIZE": "1",
        "NCCL_TUNER_PLUGIN": "none",
        "NCCL_DEBUG_FILE": "x",
        "NCCL_VERSION": "2.28.3-1",
        "TUCCL_PROFILE": "NCCL_BUFFSIZE",
        "HOME": str(tmp_path),
    }
    assert site_variables(shell) == {"NCCL_IB_TC": "106", "NCCL_CROSS_NIC": "2"}


def test_gpus_are_counted_as_cuda_shows_them(tmp_path: Path) -> None:
    compile_native(tmp_path / "libcuda.so.1", [NATIVE / "stand_in_cuda.c"], "-shared")
    program = (
        "from tuccl.errors import TucclError\n"
        "from tuccl.measuring.engines.nccl_environment import count_gpus\n"
        "try: print(count_gpus(2))\n"
        "except TucclError as error: print(error)\n"
    )

    def count(gpus: str, library: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"LD_LIBRARY_PATH": library, "STAND_IN_GPUS": gpus, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    assert count("4", str(tmp_path)) == "4"
    assert count("1", str(tmp_path)).startswith(
        "GPUs needed: 2, visible here: 1 (CUDA error 0); see"
    )
    assert count("0", str(tmp_path)).startswith("GPUs needed: 2, visible here: 0 (CUDA error 100)")
