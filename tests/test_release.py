"""A release: its bill of materials, and the checkout that is looked at first."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from write_sbom import sbom_of

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RELEASED = ("CITATION.cff", "CHANGELOG.md", "pyproject.toml", "packaging", "scripts/make")


def wheel(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "tuccl-0.1.0-py3-none-linux_x86_64.whl"
    metadata = (
        "Metadata-Version: 2.4\nName: tuccl\nVersion: 0.1.0\nSummary: Tunes\n"
        "License-Expression: Apache-2.0\nRequires-Dist: numpy>=1.26\n"
        "Requires-Dist: pulp<4,>=2.9\nRequires-Dist: mpi4py>=4; extra == 'mpi'\n"
    )
    with ZipFile(path, "w") as packed:
        packed.writestr("tuccl-0.1.0.dist-info/METADATA", metadata)
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def test_the_bill_of_materials_names_what_is_linked_in(tmp_path: Path) -> None:
    cuda = b"\x7fELF libcudart_static_955d0e854921d49ef397edbaffbaf12e1afbf272\0"
    cuda += b"Cuda compilation tools, release 13.0, V13.0.88\0St9exception\0libstdc++.so.6\0"
    static = b"\x7fELF St9exception\0GCC: (Debian 10.2.1-6) 10.2.1 20210110\0"
    files = {"tuccl/a.so": b"\x7fELF", "tuccl/b.so": cuda, "tuccl/c.so": static, "d.py": b"St9"}
    path = wheel(tmp_path, files)
    sbom = sbom_of(path)
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5")
    own = sbom["metadata"]["component"]
    assert own["purl"] == "pkg:pypi/tuccl@0.1.0"
    assert own["licenses"] == [{"expression": "Apache-2.0"}]
    components = {each["name"]: each for each in sbom["components"]}
    assert list(components) == ["numpy", "pulp", "tuccl/a.so", "tuccl/b.so", "tuccl/c.so"]
    assert components["pulp"]["properties"] == [{"name": "tuccl:versions", "value": "<4,>=2.9"}]
    assert "components" not in components["tuccl/a.so"]
    (runtime,) = components["tuccl/b.so"]["components"]
    assert runtime["version"] == "13.0.88"
    named = runtime["licenses"][0]["license"]["name"]
    assert named == "NVIDIA CUDA Toolkit End User License Agreement"
    assert named in (ROOT / "NOTICE").read_text(encoding="utf-8")
    (library,) = components["tuccl/c.so"]["components"]
    assert library["licenses"] == [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}]
    references = [each["bom-ref"] for each in sbom["components"]]
    assert sbom["dependencies"] == [{"ref": own["bom-ref"], "dependsOn": references}]
    assert sbom_of(path) == sbom
    (tmp_path / "empty.whl").write_bytes(b"PK\5\6" + bytes(18))
    with pytest.raises(ValueError, match="is no wheel"):
        sbom_of(tmp_path / "empty.whl")


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
