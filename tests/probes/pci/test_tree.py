"""Files of a system, live and from snapshots."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.pci import tree
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import DirectoryTree, FileTree, TarTree
from tests.probes.pci.sysfs_tree import GPU, SysfsTree
from tuccl.errors import MachineError, TreeError

LISTED = "sys/bus/pci/devices"


def _filled(root: Path) -> SysfsTree:
    tree = SysfsTree(root)
    tree.device(["pci0000:3a", "0000:3a:00.0", "0000:3b:00.0"], pci_class=GPU)
    tree.device(["pci0000:3a", "0000:3a:00.0"])
    tree.cpu("GenuineIntel", 6, 143)
    return tree


def _packed(root: Path, below: str = "snapshot/") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for part in sorted(root.iterdir()):
            tar.add(part, below + part.name)
    return packed.getvalue()


def _tar(*members: tuple[str, bytes, str]) -> bytes:
    """Members as (name, type, content or target)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
            else:
                info.linkname = content
                tar.addfile(info)
    return packed.getvalue()


def _in_directory(root: Path) -> FileTree:
    return DirectoryTree(root)


def _in_tar(root: Path) -> FileTree:
    return TarTree(_packed(root))


@pytest.fixture(params=[_in_directory, _in_tar])
def opened(request: pytest.FixtureRequest) -> Callable[[Path], FileTree]:
    way: Callable[[Path], FileTree] = request.param
    return way


def test_links_are_followed_to_where_a_device_lies(
    tmp_path: Path, opened: Callable[[Path], FileTree]
) -> None:
    _filled(tmp_path)
    tree = opened(tmp_path)
    assert tree.list(LISTED) == ["0000:3a:00.0", "0000:3b:00.0"]
    place = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
    assert tree.resolve(f"{LISTED}/0000:3b:00.0") == place
    assert tree.read(f"{LISTED}/0000:3b:00.0/class") == b"0x030200\n"
    assert tree.read(f"{LISTED}/0000:3b:00.0/../vendor") == b"0x8086\n"


def test_an_absolute_link_and_one_that_climbs_too_far_stay_inside(
    tmp_path: Path, opened: Callable[[Path], FileTree]
) -> None:
    tree = _filled(tmp_path)
    tree.write("etc/hostname", "inside")
    (tmp_path / "absolute").symlink_to("/etc/hostname")
    (tmp_path / "climbing").symlink_to("../../../../../../../../etc/hostname")
    for name in ("absolute", "climbing"):
        assert opened(tmp_path).read(name) == b"inside\n"


def test_what_cannot_be_read_says_why(tmp_path: Path, opened: Callable[[Path], FileTree]) -> None:
    _filled(tmp_path)
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    (tmp_path / "dangling").symlink_to("sys/nothing")
    tree = opened(tmp_path)
    for path, why, missing in (
        ("one", "its links form a loop", False),
        ("dangling", "its link leads nowhere", False),
        ("sys/nothing", "No such file or directory", True),
        (f"{LISTED}/0000:3b:00.0/nothing", "No such file or directory", True),
        (f"{LISTED}/0000:3b:00.0", "Is a directory", False),
    ):
        with pytest.raises(TreeError, match=why) as caught:
            tree.read(path)
        assert caught.value.missing is missing, path
    with pytest.raises(TreeError, match="Not a directory"):
        tree.list(f"{LISTED}/0000:3b:00.0/class")


def test_a_pipe_and_a_huge_file_do_not_keep_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert DirectoryTree(tmp_path).read("pipe") == b""
    assert len(DirectoryTree(tmp_path).read("huge")) == 1 << 20


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("below", ["", "./", "some/where/"])
def test_an_archive_shows_what_the_directory_shows(
    tmp_path: Path, pack: Callable[[bytes], bytes], below: str
) -> None:
    _filled(tmp_path)
    archived = read_sysfs(TarTree(pack(_packed(tmp_path, below))), "here")
    assert archived == read_sysfs(DirectoryTree(tmp_path), "here")
    assert len(archived.functions) == 2


def test_hostile_members_are_skipped(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    tree = TarTree(
        _tar(
            ("top/sys/bus/pci/devices", tarfile.DIRTYPE, ""),
            (f"top/../../{victim}", tarfile.REGTYPE, "x"),
            (str(victim), tarfile.REGTYPE, "x"),
            ("top/dev", tarfile.CHRTYPE, ""),
            ("top/fifo", tarfile.FIFOTYPE, ""),
            ("top/out", tarfile.SYMTYPE, "/etc/passwd"),
            ("top/a", tarfile.REGTYPE, "content"),
            ("top/sys/same", tarfile.LNKTYPE, "top/a"),
        )
    )
    assert not victim.exists()
    assert tree.read("sys/same") == b"content"
    for path in ("dev", "fifo", "out"):
        with pytest.raises(TreeError):
            tree.read(path)


def test_a_cut_archive_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    _filled(tmp_path)
    plain = _packed(tmp_path).rstrip(b"\0")
    whole = len(_packed(tmp_path))
    for pack in (bytes, gzip.compress, bz2.compress, lzma.compress):
        packed = pack(plain + bytes(whole - len(plain)))
        length = len(plain) if pack is bytes else len(packed)
        for end in range(1, length, max(1, length // 60)):
            with pytest.raises(MachineError, match=r"mail\.tar: it "):
                TarTree(packed[:end], "mail.tar")


def test_archives_that_are_none_or_too_big_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ("a/sys/bus/pci/devices", tarfile.DIRTYPE, "")
    second = ("b/sys/bus/pci/devices", tarfile.DIRTYPE, "")
    with pytest.raises(MachineError, match=r"holds 2 systems \(a/, b/\); give one at a time"):
        TarTree(_tar(first, second))
    with pytest.raises(MachineError, match="holds no sys/bus/pci/devices"):
        TarTree(_tar(("a", tarfile.REGTYPE, "x")))
    with pytest.raises(MachineError, match="no tar archive"):
        TarTree(b"a text" * 1000)
    monkeypatch.setattr(tree, "MAX_ARCHIVE_BYTES", 1 << 20)
    with pytest.raises(MachineError, match="holds more than 1 MiB"):
        TarTree(gzip.compress(bytes(2 << 20)))
    monkeypatch.setattr(tree, "MAX_MEMBERS", 1)
    with pytest.raises(MachineError, match="holds more than 1 files"):
        TarTree(_tar(first, second))


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 2_559), st.integers(0, 255)), max_size=8), st.booleans())
def test_a_damaged_archive_gives_a_tree_or_is_refused(
    damage: list[tuple[int, int]], packed: bool
) -> None:
    data = bytearray(
        _tar(
            ("top/sys/bus/pci/devices/x", tarfile.SYMTYPE, "../y"),
            ("top/sys/a", tarfile.REGTYPE, "content"),
        )
    )
    if packed:
        data = bytearray(gzip.compress(data, mtime=0))
    for place, value in damage:
        data[place % len(data)] = value
    try:
        tree = TarTree(bytes(data))
    except MachineError:
        return
    assert isinstance(tree.list(""), list)
