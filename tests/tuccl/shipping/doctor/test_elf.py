"""Symbols and needed versions of shared libraries, held against readelf."""

import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.runtime import plugin_path
from tuccl.runtime.calling_library import calling_library
from tuccl.shipping.doctor.elf import needed_by, read_elf


def readelf(option: str, path: Path) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf")
    command = ["readelf", "--wide", option, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_plugin_is_read_as_readelf_reads_it() -> None:
    path = plugin_path()
    found = read_elf(path)
    versions = set(re.findall(r"Name: (GLIBC_\S+)", readelf("--version-info", path)))
    assert found.versions == versions
    assert {f"ncclTunerPlugin_v{abi}" for abi in range(2, 7)} <= found.symbols
    assert "getenv" not in found.symbols, "it is needed, not defined"
    newest = max(tuple(map(int, version[6:].split("."))) for version in versions)
    assert found.c_library == newest[:2]


def test_what_a_library_needs_is_what_readelf_says() -> None:
    path = plugin_path()
    wanted = re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", readelf("--dynamic", path))
    assert wanted
    assert list(needed_by(path)) == wanted


def test_what_a_library_without_sections_needs(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(calling_library(plugin_path().read_bytes(), "lib.so", ["a.so", "/b/c.so.2"]))
    assert needed_by(path) == ("a.so", "/b/c.so.2")


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100)])
def test_what_is_no_library_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"shared library|damaged"):
        read_elf(path)
    with pytest.raises(ValueError, match=r"shared library|damaged"):
        needed_by(path)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=9))
def test_a_damaged_library_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(plugin_path().read_bytes())
    for place, value in changes:
        data[place % len(data) if place % 2 else place % 64] = value
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with suppress(ValueError):
            read_elf(Path(file.name))
        with suppress(ValueError):
            needed_by(Path(file.name))
