"""Hooks of mkdocs for the site of docs/, named in mkdocs.yml.

The navigation is docs/README.md: its headings are sections, its links pages. The pages and schemas
that are made from the code are added below reference/. Files outside docs/ that a page links to, as
examples/, are copied into the site, and the links follow them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from write_reference import TITLES, reference_files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX = "README.md"
MADE = "Made from the code"
"""Section of the navigation for pages that are made from the code."""
SOURCES = "sources"
"""Folder of the site for files outside docs/."""
_SECTION = re.compile(r"## (.+)")
_PAGE = re.compile(r"- \[([^\]]+)\]\(([^)#\s]+\.md)\)")
_OUTWARD = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)")

Navigation = list[dict[str, str | list[dict[str, str]]]]


def navigation(index: str) -> Navigation:
    """The sections of the index with their pages, after the index itself."""
    sections: Navigation = [{"Documents": INDEX}]
    pages: list[dict[str, str]] = []
    for line in index.splitlines():
        if heading := _SECTION.match(line):
            pages = []
            sections.append({heading[1]: pages})
        elif found := _PAGE.match(line):
            pages.append({found[1].replace("`", ""): found[2]})
    return sections


def outside(page: str, link: str) -> Path | None:
    """The file outside docs/ that a link of a page names, unless it would be a page itself."""
    target = Path(
        posixpath.normpath(posixpath.join(DOCS.as_posix(), posixpath.dirname(page), link))
    )
    taken = target.is_relative_to(ROOT) and not target.is_relative_to(DOCS)
    return target if taken and target.suffix != ".md" and target.is_file() else None


def links_into_site(page: str, markdown: str) -> str:
    """The text of a page with links to files outside docs/ turned to their copies."""

    def turned(match: re.Match[str]) -> str:
        target = outside(page, match[1])
        if target is None:
            return match[1]
        copy = posixpath.join(SOURCES, target.relative_to(ROOT).as_posix())
        return posixpath.relpath(copy, posixpath.dirname(page) or ".")

    return _OUTWARD.sub(turned, markdown)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the index, and add what is made from the code."""
    made: Navigation = [{title: f"reference/{name}"} for name, title in TITLES.items()]
    config.nav = [*navigation((DOCS / INDEX).read_text(encoding="utf-8")), {MADE: made}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made from the code, and the files outside docs/ that pages link to."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - the tests import this without mkdocs

    for name, text in reference_files().items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    for page in list(files.documentation_pages()):
        for link in _OUTWARD.findall(page.content_string):
            target = outside(page.src_uri, link)
            if target is None:
                continue
            copy = posixpath.join(SOURCES, target.relative_to(ROOT).as_posix())
            if files.get_file_from_path(copy) is None:
                files.append(File.generated(config, copy, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Turn links to files outside docs/ to their copies."""
    return links_into_site(page.file.src_uri, markdown)
