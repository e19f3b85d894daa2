"""Files that documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
TOP = "docs|lookup_tables|probes|programs|scripts|sketches|synthesizer|tests|tuccl"
PATH = re.compile(rf"(?<![\w/.-])((?:{TOP})/[\w./-]*\w)")
LINK = re.compile(r"\]\(([^)#]+)")


def named_paths(text: str) -> set[str]:
    return {path for path in PATH.findall(text) if "." in path.rsplit("/", 1)[-1]}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_are_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    gone = set()
    if document.name != "CHANGELOG.md":  # It names files of the past, too.
        gone = {path for path in named_paths(text) if not (ROOT / path).exists()}
    links = {link for link in LINK.findall(text) if "://" not in link}
    gone |= {link for link in links if not (document.parent / link).exists()}
    assert gone == set()


def test_a_path_is_found_within_backticks_and_commands() -> None:
    text = "`scripts/test.sh`, ../tuccl/x.py, tuccl/search/mraco.py; tests/runtime, not a/docs/x.md"
    assert named_paths(text) == {"scripts/test.sh", "tuccl/search/mraco.py"}
