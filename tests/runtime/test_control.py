"""The control block: the native test with sanitizers; Python's layout against the plugin's."""

import os
from pathlib import Path

import pytest

from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tests.runtime.builds import MEMORY, THREADS, run
from tests.runtime.plugin_abi import ALGORITHMS, IGNORED, PROTOCOLS, VERSIONS, Plugin
from tests.runtime.test_native import build
from tests.runtime.write_bundles import write_bundles
from tuccl.measuring.engines.control_block import (
    CONTROL_VARIABLE,
    NO_OVERRIDE,
    ControlBlock,
    Counters,
    override_word,
)

ALL_REDUCE = 4


@pytest.mark.long
@pytest.mark.parametrize("flags", [MEMORY, THREADS], ids=["memory", "threads"])
def test_every_abi_and_several_threads(
    flags: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    plugin_sources: list[Path],
    tmp_path: Path,
) -> None:
    program = build(tmp_path_factory, "follow_control", plugin_sources, *flags)
    bundle, _ = write_bundles(tmp_path)
    assert "ABI 2 to 7" in run(program, bundle, tmp_path / "block")


def costs() -> list[float]:
    table = [IGNORED] * (ALGORITHMS * PROTOCOLS)
    table[0:6] = [30.0, 31.0, 32.0, 20.5, 21.0, 22.0]  # Tree and ring.
    return table


@pytest.mark.parametrize("version", [v for v in VERSIONS if v > 2])
def test_python_and_plugin_mean_the_same(
    plugin: Plugin, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlBlock()
    assert control.loaded_abi() == 0
    monkeypatch.setenv(CONTROL_VARIABLE, control.path)
    result, communicator = plugin.init(version, 4, 1, domain_ranks=(4, 4))
    assert result == 0
    assert control.loaded_abi() == version
    assert control.last_question() is None

    assert communicator.call(ALL_REDUCE, 4096, costs()).cost == costs()
    assert control.counters() == Counters(asked=1, forced=0, refused=0)

    control.request_override(override_word("ring", "LL128", 12))
    call = communicator.call(ALL_REDUCE, 8192, costs(), nchannels=3)
    assert [call.cost[i] for i in (3, 4, 5)] == [20.5, 0.0, 22.0]
    assert call.nchannels == 12
    assert control.counters() == Counters(asked=2, forced=1, refused=0)
    question = control.last_question()
    assert question is not None
    assert (question.function, question.size_bytes, question.nchannels) == (ALL_REDUCE, 8192, 3)
    assert question.table is not None
    assert len(question.table.allowed) == 6
    assert (NcclAlgorithm.RING, NcclProtocol.LL128, 21.0) in question.table.costs

    control.request_override(override_word("nvls", "Simple", 0))
    assert communicator.call(ALL_REDUCE, 8192, costs()).cost == costs()
    assert control.counters() == Counters(asked=3, forced=1, refused=1)

    control.request_override(NO_OVERRIDE)
    assert communicator.call(ALL_REDUCE, 8192, costs()).cost == costs()
    assert control.counters() == Counters(asked=4, forced=1, refused=1)
    control.close()
    control.close()
    assert communicator.call(ALL_REDUCE, 8192, costs()).cost == costs()
    communicator.end()


@pytest.mark.parametrize("version", [6, 7])
def test_python_and_plugin_mean_the_same_size_of_chunks(
    plugin: Plugin, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlBlock()
    monkeypatch.setenv(CONTROL_VARIABLE, control.path)
    _, communicator = plugin.init(version, 4, 1)
    ring_simple, own = (1, 2), 2 << 20
    communicator.call(ALL_REDUCE, 8 << 20, costs())
    assert communicator.chunk(ALL_REDUCE, 8 << 20, ring_simple, own) == own
    control.request_override(override_word("ring", "Simple", 12, 128 << 10))
    assert communicator.call(ALL_REDUCE, 8 << 20, costs()).nchannels == 12
    # Four ranks have a chunk each at once: 512 KB are one step, in which nothing changes.
    for part_bytes in (8 << 20, (512 << 10) + 4, 512 << 10):
        assert communicator.chunk(ALL_REDUCE, part_bytes, ring_simple, own) == 128 << 10
    assert control.counters() == Counters(2, 1, 0, chunks_asked=4, chunks_changed=2)
    communicator.end()
    control.close()
    for wrong in (300, -1):
        with pytest.raises(ValueError, match=f"{wrong} channels"):
            override_word("ring", "LL", wrong)
    with pytest.raises(ValueError, match="chunks of 5000 bytes"):
        override_word("ring", "LL", 1, 5000)


def test_a_block_cannot_shrink() -> None:
    control = ControlBlock()
    with pytest.raises(PermissionError):
        os.truncate(control.path, 0)
    control.close()


def test_a_block_without_memory_or_open_to_others_is_refused(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlBlock()
    page = Path(control.path).read_bytes()
    control.close()
    path = tmp_path / "block"
    monkeypatch.setenv(CONTROL_VARIABLE, str(path))
    for content, mode, code in ((page, 0o600, 0), (page, 0o622, 5), (b"", 0o600, 5)):
        path.write_bytes(content)
        os.truncate(path, len(page))  # Where nothing was written a hole.
        path.chmod(mode)
        result, communicator = plugin.init(5, 4, 1)
        assert result == code
        if result == 0:
            communicator.end()
    _, open_to_others, hole = ["", *plugin.warnings()]
    assert "can be written by other users" in open_to_others
    assert "is no control block" in hole


def test_a_mark_of_another_process_is_none() -> None:
    control = ControlBlock()
    control._block.loaded_abi = 5
    control._block.loaded_pid = os.getpid() + 1
    assert control.loaded_abi() == 0
    control._block.loaded_pid = os.getpid()
    assert control.loaded_abi() == 5
    control.close()


def test_a_block_that_is_none_keeps_the_communicator_from_starting(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTROL_VARIABLE, str(tmp_path / "gone"))
    result, _ = plugin.init(5, 4, 1)
    assert result == 5  # ncclInvalidUsage
    (warning,) = plugin.warnings()
    assert f"TUCCL_CONTROL={tmp_path / 'gone'} cannot be opened" in warning
    assert "unset it in jobs" in warning
