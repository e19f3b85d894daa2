"""Packages: versions and dependencies agree, and referenced files exist."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tuccl import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORT = re.compile(
    r"^ *(?:import (\w+)(?:[.\w]*)(?: as \w+)?|from (\w+)[.\w]* import .+)$", re.MULTILINE
)
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "WORKDIR"}


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_names_this_version() -> None:
    citation = read_yaml("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
    assert citation["keywords"] == PROJECT["keywords"]


def test_the_conda_recipe_is_that_of_this_project() -> None:
    recipe = read_yaml("packaging/conda/recipe.yaml")
    assert recipe["context"]["version"] == PROJECT["version"]
    name, entry = next(iter(PROJECT["scripts"].items()))
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {entry}"]
    python, *run = recipe["requirements"]["run"]
    assert python == f"python {PROJECT['requires-python']}"
    assert [line.replace(" ", "", 1) for line in run] == PROJECT["dependencies"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    place = ROOT / "packaging" / "conda" / recipe["source"]["path"]
    assert place.resolve() == ROOT
    variants = read_yaml("packaging/conda/variants.yaml")
    used = re.findall(r"\w+(?=\('c'\))", " ".join(recipe["requirements"]["build"]))
    assert used == ["compiler", "stdlib"]
    assert variants == {"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}
    assert "glibc 2.28 or later" in (ROOT / "docs/guide/install.md").read_text(encoding="utf-8")
    for file in recipe["about"]["license_file"]:
        assert (ROOT / file).is_file()


def imported_packages() -> Iterator[str]:
    """Packages that the product imports at any place; of Plotly it reads a file alone."""
    yield "plotly"
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        for words in IMPORT.findall(path.read_text(encoding="utf-8")):
            yield next(filter(None, words))


@pytest.mark.long
def test_the_dependencies_are_what_the_product_imports() -> None:
    outside = set(imported_packages()) - sys.stdlib_module_names - set(PACKAGES)
    distributions = packages_distributions()
    needed = {distributions[package][0].lower() for package in outside}
    named = {re.split(r"[<>=]", each)[0] for each in PROJECT["dependencies"]}
    assert needed == named


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their words; comments and folds are taken out."""
    text = (ROOT / "packaging" / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    folded = re.sub(r"\\\n\s*", " ", lines)
    pairs = (line.split(maxsplit=1) for line in folded.splitlines() if line.strip())
    return [(name, words) for name, words in pairs]


def test_the_dockerfile_copies_what_there_is_and_names_this_version() -> None:
    found = instructions()
    assert {name for name, _ in found} <= INSTRUCTIONS
    copied = [words.split() for name, words in found if name == "COPY"]
    own = [word for words in copied if not words[0].startswith("--") for word in words[:-1]]
    assert own
    ignored = (ROOT / "packaging" / "Dockerfile.dockerignore").read_text().splitlines()
    for path in own:
        assert (ROOT / path).exists()
        assert f"!{path}" in ignored
    stages = {words.split(" AS ")[1] for name, words in found if name == "FROM" and " AS " in words}
    assert {words[0] for words in copied if words[0].startswith("--")} == {
        f"--from={stage}" for stage in stages
    }
    arguments = {words.partition("=")[0] for name, words in found if name == "ARG"}
    used = {match for _, words in found for match in re.findall(r"\$\{(\w+)\}", words)}
    assert used == arguments
    (label,) = (words for name, words in found if name == "LABEL")
    assert f'image.version="{PROJECT["version"]}"' in label
    assert f'image.licenses="{PROJECT["license"]}"' in label
    assert ("ENTRYPOINT", json.dumps(list(PROJECT["scripts"]))) in found


def test_one_name_serves_pipx_and_uvx() -> None:
    assert list(PROJECT["scripts"]) == [PROJECT["name"]]
