"""Files and headings that documents and comments name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuccl import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
SOURCES = sorted(
    path
    for folder in (*PACKAGES, "examples", "scripts", "tests")
    for suffix in ("py", "pyi", "sh", "c", "h", "cc", "cpp", "cu", "cuh")
    for path in (ROOT / folder).rglob(f"*.{suffix}")
)
TOP = "|".join(["docs", "scripts", "tests", *PACKAGES])
PATH = re.compile(rf"(?<![\w/.-])((?:{TOP})/[\w./-]*\w)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"#+ (.*)")


def named_paths(text: str) -> set[str]:
    return {path for path in PATH.findall(text) if "." in path.rsplit("/", 1)[-1]}


def anchors(document: Path) -> set[str]:
    """The anchors of headings: lower case, without punctuation, `-` for each space."""
    found, in_code = set(), False
    for line in document.read_text(encoding="utf-8").splitlines():
        in_code ^= line.startswith("```")
        if not in_code and (heading := HEADING.match(line)):
            plain = re.sub(r"[^\w\- ]", "", heading[1].strip().lower())
            found.add(plain.replace(" ", "-"))
    return found


def dead_links(document: Path) -> set[str]:
    dead = set()
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if "://" not in link and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            dead.add(link)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_existing_files(document: Path) -> None:
    assert dead_links(document) == set()
    if document.name != "CHANGELOG.md":  # The change log also names removed files.
        named = named_paths(document.read_text(encoding="utf-8"))
        assert {path for path in named if not (ROOT / path).exists()} == set()


def test_the_index_has_every_page_once() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)\s]+)\)", index, re.MULTILINE)
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(pages)


@pytest.mark.long
def test_code_names_existing_documents_and_scripts() -> None:
    gone = {
        (str(source.relative_to(ROOT)), path)
        for source in SOURCES
        if source != Path(__file__)
        for path in named_paths(source.read_text(encoding="utf-8"))
        if path.startswith(("docs/", "scripts/")) and not (ROOT / path).exists()
    }
    assert gone == set()


def test_a_link_needs_its_file_and_its_heading(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text(
        "# A title\n```\n# no heading\n```\n## `tuccl init`, and so on\n"
    )
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md#a-title) [b](other.md#tuccl-init-and-so-on) [c](#here)\n"
        "[d](other.md) [e](gone.md) [f](other.md#no-heading) [g](#there) [h](https://example.org/gone.md#x)\n"
    )
    assert dead_links(page) == {"gone.md", "other.md#no-heading", "#there"}
