"""The site of docs/: it has every page in its navigation, builds strictly and fetches nothing."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from site_hooks import DOCS, INDEX, ROOT, links_into_site, navigation
from write_reference import TITLES

from tests.tuccl.views.page.test_in_browser import BROWSER, opened

needs_mkdocs = pytest.mark.skipif(
    find_spec("material") is None or find_spec("mkdocs") is None,
    reason="mkdocs-material is not installed: pip install '.[docs]'",
)
FETCHED = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^\s>]*"
)


def build(project: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", project / "scripts" / "make" / "build_site.sh", target],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )


def test_the_navigation_has_every_page_once_under_the_headings_of_the_index() -> None:
    sections = navigation((DOCS / INDEX).read_text(encoding="utf-8"))
    pages = [INDEX]
    for section in sections[1:]:
        ((_, listed),) = section.items()
        assert isinstance(listed, list)
        assert listed
        pages += [place for page in listed for place in page.values()]
    written = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(pages) == sorted(written)


def test_titles_and_places_are_those_of_the_index() -> None:
    index = (
        "# Top\n\n## Guide\n\n- [The `x` page](guide/x.md): text\n\n## Notes\n\n- [N](lab/n.md)\n"
    )
    assert navigation(index) == [
        {"Documents": "README.md"},
        {"Guide": [{"The x page": "guide/x.md"}]},
        {"Notes": [{"N": "lab/n.md"}]},
    ]


def test_a_link_to_a_file_outside_the_documents_goes_to_its_copy() -> None:
    text = "[a](../../examples/own_schedule.py) [b](../lab/p2p.md) [c](../../README.md)"
    assert links_into_site("guide/python.md", text) == text.replace(
        "../../examples/own_schedule.py", "../sources/examples/own_schedule.py"
    )


@pytest.mark.long
@needs_mkdocs
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "site" / "index.html")
    written = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.html")}
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    pages |= {Path("reference", name).with_suffix(".html") for name in TITLES}
    assert (tmp_path / "site" / "reference" / "schemas" / "table.schema.json").is_file()
    assert (pages - {Path("README.html")}) | {Path("index.html")} <= written
    fetched = {
        match
        for page in written
        for match in FETCHED.findall((tmp_path / "site" / page).read_text(encoding="utf-8"))
    }
    assert fetched == set()


@pytest.mark.long
@needs_mkdocs
def test_a_dead_link_or_anchor_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copytree(ROOT / "scripts" / "make", tmp_path / "scripts" / "make")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "scripts" / "make" / "write_reference.py").write_text(
        "TITLES = {}\n\ndef reference_files():\n    return {}\n"
    )
    (tmp_path / "docs" / "guide").mkdir(parents=True)
    (tmp_path / "docs" / "guide" / "mpi.md").write_text("# MPI\n")
    (tmp_path / "docs" / INDEX).write_text(
        "# Top\n\n## Guide\n\n- [MPI](guide/mpi.md)\n\n"
        "[a](gone.md) [b](guide/mpi.md#none) [c](../gone.py)\n"
    )
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert all(f"'{link}'" in done.stderr for link in ("gone.md", "guide/mpi.md#none"))
    assert "gone.py" in done.stderr


@needs_mkdocs
@pytest.mark.slow
@pytest.mark.skipif(not BROWSER, reason="no Chromium here: the search of the site is not tried")
def test_the_search_works_from_a_disk_and_asks_for_nothing(tmp_path: Path) -> None:
    assert build(ROOT, tmp_path / "site").returncode == 0
    page = tmp_path / "page.html"
    site = (tmp_path / "site" / "index.html").as_uri()
    page.write_text(f"<script>location = '{site}?q=fingerprint'</script>")
    document, _, asked = opened(page, tmp_path)
    found = re.search(r"(\d+) matching documents", document)
    assert found is not None
    assert int(found[1]) > 3
    assert asked == []
