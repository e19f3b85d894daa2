from pathlib import Path

import pytest

import tuccl.runtime
from tuccl.runtime import PLUGIN_NAME, PluginMissingError, plugin_path


def test_the_installed_plugin_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    installed = tmp_path / "site" / PLUGIN_NAME
    installed.write_bytes(b"")
    # An editable install has two folders: the sources, and where the build put the library.
    monkeypatch.setattr(
        tuccl.runtime, "__path__", [str(tmp_path / "source"), str(tmp_path / "site")]
    )
    assert plugin_path() == installed


def test_a_source_tree_says_how_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path)])
    with pytest.raises(PluginMissingError, match=r"pip install \.") as caught:
        plugin_path()
    assert "\n" not in str(caught.value)
