"""Obstacles to writing a run's result stop it before it begins."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_tables.parquet_form import require_pyarrow
from tests.kept_builds import ROOT
from tests.tuccl.conftest import Run, TunedWorkspace, run_in
from tuccl.errors import HostError, WorkspaceError
from tuccl.workspace.atomic_file import require_room

BROKEN = {
    "it cannot be imported": {"__init__.py": "raise ImportError('libarrow.so.2400: no such file')"},
    "it is of another numpy": {"__init__.py": "raise ValueError('numpy.dtype size changed')"},
    "it has no Parquet": {"__init__.py": "class ArrowException(Exception): pass"},
    "its Parquet lacks parts": {
        "__init__.py": "class ArrowException(Exception): pass",
        "parquet.py": "from pyarrow import lib",
    },
    "it cannot write": {
        "__init__.py": "class ArrowException(Exception): pass",
        "parquet.py": "",
    },
}


def python(
    folder: Path, packages: Path, code: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """A program with packages that come before the installed ones."""
    return run_in(
        folder,
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"},
    )


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    (tmp_path / "packages" / "pyarrow").mkdir(parents=True)
    return tmp_path / "packages"


@pytest.mark.long
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_pyarrow_is_named_with_its_remedy(packages: Path, how: str) -> None:
    for name, text in BROKEN[how].items():
        (packages / "pyarrow" / name).write_text(text)
    done = python(packages, packages, "from lookup_tables.parquet_form import *; require_pyarrow()")
    assert "HostError: pyarrow, which tables are written with, cannot be used (" in done.stderr
    assert "-m pip install --force-reinstall pyarrow" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("words", [("init", "--backend", "simulated"), ("retune",), ("table",)])
def test_commands_say_it_in_a_line_before_they_probe(
    tuned: TunedWorkspace, tmp_path: Path, packages: Path, words: tuple[str, ...]
) -> None:
    (packages / "pyarrow" / "__init__.py").write_text("raise ImportError('broken')")
    done = python(tmp_path, packages, "from tuccl.cli.app import main; main()", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert "(ImportError: broken)" in done.stderr
    assert not (tuned.root / "probed.json").exists()


def test_a_compression_that_is_missing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object, compression: str, **__: object) -> None:
        raise pa.ArrowNotImplementedError(f"{compression}: not built\nsecond line")

    require_pyarrow()
    monkeypatch.setattr(pq, "write_table", write)
    with pytest.raises(HostError, match=r"snappy: not built\)") as error:
        require_pyarrow()
    assert "\n" not in str(error.value)


def test_room_is_looked_for_without_a_trace(tmp_path: Path) -> None:
    require_room(tmp_path / "none" / "such" / "file")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match=r"cannot write .*/file/below: Not a directory"):
        require_room(tmp_path / "file" / "below")


def test_options_are_judged_before_the_host_is_probed(run_inside: Run, tmp_path: Path) -> None:
    done = run_inside("init", "--backend", "simulated", "--weights", "all_reduce=much")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []
