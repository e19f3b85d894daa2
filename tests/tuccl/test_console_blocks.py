"""Console blocks of documents: each command prints what the page shows below it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from write_console_output import renewed, without_variation

from tests.tuccl.ready_command import ReadyCommand
from tests.tuccl.ready_script import ReadyScript

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    page.relative_to(ROOT)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```console\n" in page.read_text(encoding="utf-8")
]


@pytest.fixture
def script(
    ready_command: ReadyCommand, tuccl_command: str, tmp_path: Path
) -> Iterator[ReadyScript]:
    """The installed `tuccl`, with its modules loaded."""
    found = ReadyScript(ready_command, tmp_path / "bin", tuccl_command)
    yield found
    found.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.as_posix())
def test_the_console_prints_what_the_page_shows(
    page: Path, script: ReadyScript, tuccl_command: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", f"{Path(tuccl_command).parent}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("PATH", str(script.directory), prepend=":")
    shown = (ROOT / page).read_text(encoding="utf-8")
    directory = tmp_path / "empty"
    directory.mkdir()
    assert without_variation(renewed(shown, directory)) == without_variation(shown), (
        f"run scripts/make/write_console_output.py {page}, and see that the text around still holds"
    )


def test_a_script_has_arguments_streams_and_exit_code_of_its_run(
    script: ReadyScript, tmp_path: Path
) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script.directory / "tuccl", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    listed = run("topology", "show")
    assert (listed.returncode, listed.stdout[:22]) == (0, "shipped:a100-8gpu-8nic")
    refused = run("topology", "show", "no such file.xml")
    assert refused.returncode == 2
    assert refused.stderr.startswith("tuccl: no such file.xml: ")
