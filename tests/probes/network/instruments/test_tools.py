from pathlib import Path

import pytest

from probes.network.instruments.tools import MEASURING, Tool, install_hint, missing_tools


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def _install(folder: Path, tool: Tool, script: str) -> None:
    shell = "/bin/sh"
    (folder / tool).write_text(f"#!{shell}\n{script}\n")
    (folder / tool).chmod(0o755)


def test_what_is_missing_is_named(empty_path: Path) -> None:
    _install(empty_path, Tool.IPERF3, "exit 0")
    assert missing_tools(MEASURING) == ("ping",)
    assert missing_tools() == ("ping", "ib_write_bw", "ib_write_lat")


@pytest.mark.parametrize("tool", Tool)
def test_every_tool_has_a_package(tool: Tool) -> None:
    assert install_hint(tool).startswith("apt-get install ")
