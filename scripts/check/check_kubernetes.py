"""Hold the files of `tuccl ship --to kubernetes` against the API schemas of Kubernetes' releases.

    check_kubernetes.py DIR [--releases 1.25,1.37]
    check_kubernetes.py --reduce FILE [--releases 1.37]

DIR is a shipped directory. ConfigMap and DaemonSet are checked, and, where kubectl is there, what
its kustomize builds by the guide: a Job with each of the two patches, the DaemonSet of one pool of
nodes. Objects that are wrong in one place must be refused, so that the check is known to see them.
The schemas are those of the Python package kubernetes-validate, which is installed once into
$XDG_CACHE_HOME/tuccl-kubernetes-schemas. --reduce writes the part that the tests use to FILE.
Exit code 0: all objects are taken; 1: one is refused, or a wrong one is taken; 2: it cannot begin.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from kubernetes_builds import PATCHES, KubectlMissingError, build_job, build_nodes, mutants
from kubernetes_rules import breaches_of_restricted, complaints, pod_of, reduced

PACKAGE = "kubernetes-validate==1.37.0"


def main() -> int:
    """Check or reduce; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--releases", default="")
    parser.add_argument("--reduce", type=Path)
    arguments = parser.parse_args()
    table = arguments.directory / "kubernetes" if arguments.directory else None
    if arguments.reduce is None and (table is None or not (table / "daemonset.yaml").is_file()):
        parser.error("name a directory of `tuccl ship --to kubernetes`")
    schemas = install()
    releases = arguments.releases.split(",") if arguments.releases else known_releases(schemas)
    if arguments.reduce is not None:
        definitions = definitions_of(schemas, releases[-1])
        text = json.dumps({"release": releases[-1], "definitions": definitions}, indent=None)
        arguments.reduce.write_text(text.replace('}, "io.k8s', '},\n"io.k8s') + "\n")
        return 0
    documents = {} if table is None else dict(objects(table))
    wrong = 0
    for release in releases:
        definitions = definitions_of(schemas, release)
        for name, document in documents.items():
            found = complaints(document, definitions)
            missed = [what for what, it in mutants(document) if not complaints(it, definitions)]
            found += [f"a wrong object is taken: {what}" for what in missed]
            refused = sum(1 for _ in mutants(document)) - len(missed)
            print(
                f"{release}  {name}: {'; '.join(found) or f'taken; {refused} wrong ones refused'}"
            )
            wrong += bool(found)
    return 1 if wrong else 0


def objects(table: Path) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a shipped table by name: as they are, and as kustomize builds them."""
    for name in ("configmap.yaml", "daemonset.yaml"):
        yield name, yaml.safe_load((table / name).read_text())
    with tempfile.TemporaryDirectory() as work:
        try:
            for patch in PATCHES:
                for document in build_job(table, Path(work, patch), patch):
                    name = f"{document['kind']} with {patch}"
                    if document["kind"] == "Job":
                        breaches = "; ".join(breaches_of_restricted(pod_of(document)))
                        print(f"Pod Security, restricted: {name}: {breaches or 'taken'}")
                    yield name, document
            for name in ("nodes", "h100"):
                for document in build_nodes(table, Path(work, name), name):
                    yield f"{document['kind']} for {name}", document
        except KubectlMissingError:
            print("no kubectl: the patches and the kustomizations are not checked")


def install() -> Path:
    """Install the schemas, if that is not done; return their folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "tuccl-kubernetes-schemas"
    if not (target / "complete").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
        subprocess.run([*command, "--upgrade", "--target", str(target), PACKAGE], check=True)
        (target / "complete").touch()
    return target / "kubernetes_validate" / "kubernetes-json-schema"


def known_releases(schemas: Path) -> list[str]:
    """Return the releases whose schemas are there, oldest first."""
    names = [
        re.fullmatch(r"v(\d+)\.(\d+)\.0-local-strict", path.name) for path in schemas.iterdir()
    ]
    numbers = sorted((int(found[1]), int(found[2])) for found in names if found)
    return [f"{major}.{minor}" for major, minor in numbers]


def definitions_of(schemas: Path, release: str) -> dict[str, Any]:
    """Return the strict schemas of a release, prepared for `complaints`."""
    text = (schemas / f"v{release}.0-local-strict" / "_definitions.json").read_text()
    return reduced(json.loads(text)["$defs"])


if __name__ == "__main__":
    sys.exit(main())
