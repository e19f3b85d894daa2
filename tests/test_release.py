"""A release: the checkout is looked at first."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RELEASED = ("CITATION.cff", "CHANGELOG.md", "pyproject.toml", "packaging", "scripts/make")


def git(folder: Path, *words: str) -> None:
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    environment = {**os.environ, **dict.fromkeys(names, "a@b.c"), "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the files that a release looks at, whose version has a date."""
    for name in RELEASED:
        source, copy = ROOT / name, tmp_path / name
        paths = [source] if source.is_file() else [p for p in source.rglob("*") if p.is_file()]
        for path in paths:
            own = copy / path.relative_to(source) if source.is_dir() else copy
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_bytes(path.read_bytes())
    log = tmp_path / "CHANGELOG.md"
    log.write_text(re.sub(r"(?m)^(## [\d.]+), .*$", r"\1, 2026-01-02", log.read_text(), count=1))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "All")
    return tmp_path


def look(checkout: Path) -> tuple[int, str]:
    command = ["bash", str(checkout / "scripts" / "make" / "release.sh"), "--look"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_a_release_is_looked_at_before_it_is_made(checkout: Path) -> None:
    code, said = look(checkout)
    assert (code, said.rsplit(" of ", 1)[0]) == (0, f"version {PROJECT['version']}")
    (checkout / "new").write_text("")
    assert look(checkout) == (2, "release.sh: the checkout has changes (new): commit them first\n")
    (checkout / "new").unlink()
    for name, old, new in (
        ("CITATION.cff", f"version: {PROJECT['version']}", "version: 9.9.9"),
        ("packaging/conda/recipe.yaml", f"version: {PROJECT['version']}", "version: 9.9.9"),
        ("packaging/Dockerfile", f'version="{PROJECT["version"]}"', 'version="9.9.9"'),
        ("CHANGELOG.md", ", 2026-01-02", ", not released"),
    ):
        path = checkout / name
        text = path.read_text()
        path.write_text(text.replace(old, new))
        git(checkout, "commit", "-q", "-a", "-m", "Another version")
        code, said = look(checkout)
        assert (code, said.count("\n")) == (2, 1)
        assert f"release.sh: {name} has" in said
        path.write_text(text)
        git(checkout, "commit", "-q", "-a", "-m", "As before")
    assert look(checkout)[0] == 0
