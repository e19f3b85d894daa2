"""TuCCL takes one import name, `tuccl`, and runs beside packages of any other name."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def names_below() -> list[str]:
    """The packages of `tuccl` whose names are free: `statistics` is the standard library's."""
    names = {path.parent.name for path in (ROOT / "tuccl").glob("*/__init__.py")}
    return sorted(names - sys.stdlib_module_names)


def test_the_installation_brings_one_name() -> None:
    try:
        installed = files("tuccl") or []
    except PackageNotFoundError:
        pytest.skip("tuccl is not installed in this environment")
    folders = {path.parts[0] for path in installed if len(path.parts) > 1 and path.parts[0] != ".."}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"tuccl"}


def test_a_machine_is_tuned_beside_packages_of_the_same_names(tmp_path: Path) -> None:
    names = names_below()
    assert {"probes", "sketches", "synthesizer"} <= set(names)
    for name in names:
        package = tmp_path / "site" / name
        package.mkdir(parents=True)
        text = f'raise ImportError("{name} of another project was imported")\n'
        (package / "__init__.py").write_text(text, encoding="utf-8")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path / 'site')!r}, {str(ROOT)!r}]\n"
        "from tuccl.__main__ import main; main()"
    )
    words = ("--topology", "shipped:a100-8gpu-8nic", "--operations", "all_gather")
    sizes = ("--min-size", "1M", "--max-size", "1M", "--workspace", str(tmp_path / "workspace"))
    done = subprocess.run(
        [sys.executable, "-c", program, "init", *words, *sizes],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "all_gather" in done.stdout
