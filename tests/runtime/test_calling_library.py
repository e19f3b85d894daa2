"""Programs that look NCCL's functions up in a handle of dlopen, over stand-ins for libraries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.builds import EXECUTOR, compile_all, link
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME, calling_library

NCCL = """
int ncclGroupStart(void) { return 7; }
int ncclOfTheFuture(void) { return 9; }
"""
INTERPOSER = """
#include "real_nccl.h"
extern "C" __attribute__((visibility("default"))) int ncclGroupStart() {
    return tuccl::real_nccl().GroupStart() + 100;
}
"""
PROGRAM = """
import ctypes, sys
*before, library = sys.argv[1:]
for other in before:
    ctypes.CDLL(other)
found = ctypes.CDLL(library)
mapped = {line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith(".so")}
executors = [path for path in mapped if path.endswith("libtuccl-executor.so")]
print(found.ncclGroupStart(), found.ncclOfTheFuture(), len(executors))
try:
    found.ncclOfNoRelease
except AttributeError:
    print("none")
"""
SERVED = "107 9 1\nnone\n"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an NCCL, an executor that passes calls on, and both calling libraries."""
    folder = tmp_path_factory.mktemp("calling")
    (folder / "nccl.c").write_text(NCCL)
    (folder / "interposer.cc").write_text(INTERPOSER)
    (nccl,) = compile_all(folder, [folder / "nccl.c"])
    link(folder / "libnccl.so.2", [nccl], "-shared", "-Wl,-soname,libnccl.so.2")
    sources = [folder / "interposer.cc", EXECUTOR / "real_nccl.cc"]
    objects = compile_all(folder, sources)
    executor = link(folder / "libtuccl-executor.so", objects, "-shared", "-pthread", "-ldl")
    (folder / CALLING_LIBRARY_NAME).write_bytes(calling_library(executor.read_bytes()))
    instead = folder / "instead"
    instead.mkdir()
    paths = [str(executor), str(folder / "libnccl.so.2")]
    (instead / "libnccl.so.2").write_bytes(
        calling_library(executor.read_bytes(), "libnccl.so.2", paths)
    )
    return folder


def said(*libraries: object, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, libraries)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_handle_finds_the_executor_first_and_then_the_nccl_that_is_loaded(
    libraries: Path,
) -> None:
    calling = libraries / CALLING_LIBRARY_NAME
    assert said(libraries / "libnccl.so.2", calling) == SERVED


def test_a_preloaded_executor_is_the_same_one(libraries: Path) -> None:
    preload = str(libraries / "libtuccl-executor.so")
    calling = libraries / CALLING_LIBRARY_NAME
    assert said(libraries / "libnccl.so.2", calling, LD_PRELOAD=preload) == SERVED


def test_where_no_nccl_is_loaded_the_loader_finds_one(libraries: Path) -> None:
    calling = libraries / CALLING_LIBRARY_NAME
    assert said(calling, LD_LIBRARY_PATH=str(libraries)) == SERVED


@pytest.mark.parametrize("preloaded", [False, True])
def test_it_stands_for_nccl_by_its_name(libraries: Path, preloaded: bool) -> None:
    preload = {"LD_PRELOAD": str(libraries / "libtuccl-executor.so")} if preloaded else {}
    path = str(libraries / "instead")
    assert said("libnccl.so.2", LD_LIBRARY_PATH=path, **preload) == SERVED


OPENER = """
#include <dlfcn.h>
int begin(void) {
    int (*start)(void) = (int (*)(void))dlsym(dlopen("libnccl.so.2", RTLD_NOW), "ncclGroupStart");
    return start();
}
"""


@pytest.mark.parametrize(("preload", "answer"), [("instead/libnccl.so.2", 107), ("", 7)])
def test_preloaded_by_that_name_it_goes_before_a_programs_own_search_path(
    libraries: Path, tmp_path: Path, preload: str, answer: int
) -> None:
    (tmp_path / "opener.c").write_text(OPENER)
    (opener,) = compile_all(tmp_path, [tmp_path / "opener.c"])
    path = f"-Wl,--disable-new-dtags,-rpath,{libraries}"  # DT_RPATH, as in JAX's plugin.
    library = link(tmp_path / "libopener.so", [opener], "-shared", path, "-ldl")
    variables = {"LD_PRELOAD": str(libraries / preload)} if preload else {}
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).begin())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(library)],
        env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{answer}\n", "")


def test_a_moved_directory_finds_its_own_executor(libraries: Path, tmp_path: Path) -> None:
    for name in ("libtuccl-executor.so", CALLING_LIBRARY_NAME):
        shutil.copy(libraries / name, tmp_path / name)
    assert said(libraries / "libnccl.so.2", tmp_path / CALLING_LIBRARY_NAME) == SERVED


def test_without_nccl_it_is_refused_by_name(libraries: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(libraries / CALLING_LIBRARY_NAME)],
        env={}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "libnccl.so.2: cannot open shared object file" in done.stderr


def test_what_is_no_library_says_nothing_of_the_machine() -> None:
    with pytest.raises(ValueError, match="no ELF library of 64 bits"):
        calling_library(b"executor")
