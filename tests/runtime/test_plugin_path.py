import sys
from pathlib import Path

import pytest

import tuccl.runtime
from tuccl.runtime import (
    EXECUTOR_NAME,
    PLUGIN_NAME,
    PluginMissingError,
    executor_path,
    plugin_path,
)


def test_the_plugin_beside_the_sources_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PLUGIN_NAME).write_bytes(b"")
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path)])
    assert plugin_path() == tmp_path / PLUGIN_NAME


def test_the_plugin_of_an_editable_install_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages" / "tuccl" / "runtime" / PLUGIN_NAME
    installed.parent.mkdir(parents=True)
    installed.write_bytes(b"")
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path / "sources")])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    assert plugin_path() == installed


def test_a_source_tree_says_how_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path)])
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(PluginMissingError, match=r"pip install \.") as caught:
        plugin_path()
    assert "\n" not in str(caught.value)


def test_an_executor_that_was_not_built_says_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path)])
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(PluginMissingError, match="a C\\+\\+ and a CUDA compiler"):
        executor_path()
    (tmp_path / EXECUTOR_NAME).write_bytes(b"")
    assert executor_path() == tmp_path / EXECUTOR_NAME
