"""Objects that kustomize builds of a shipped table as the guide says, and wrong ones."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "kubernetes.md"
PATCHES = ("pod-patch.yaml", "pod-patch-copy.yaml")
_BLOCK = re.compile(
    r"^```yaml\n# (\S+)/kustomization\.yaml.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
_CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "securityContext": {
                    "runAsNonRoot": True, "runAsUser": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "securityContext": _CONFINED,
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
                "volumes": [{"name": "data", "emptyDir": {}}],
            }
        }
    },
}  # fmt: skip
"""A job that Pod Security's level `restricted` takes."""


class KubectlMissingError(Exception):
    """There is no kubectl, whose kustomize builds objects."""


def guide_block(name: str) -> str:
    """Return the kustomization of a folder as the guide prints it.

    Raises:
        LookupError: The guide has none.
    """
    for folder, text in _BLOCK.findall(GUIDE.read_text()):
        if folder == name:
            return str(text)
    raise LookupError(f"{GUIDE} has no {name}/kustomization.yaml")


def build_job(table: Path, work: Path, patch: str) -> list[Any]:
    """Return the objects of a job's kustomization with a patch.

    Args:
        table: Folder `kubernetes` of the shipped directory.
        work: Folder to be made.
        patch: Name of the patch.

    Raises:
        KubectlMissingError: There is no kubectl.
    """
    text = guide_block("job").replace(PATCHES[0], patch)
    work.mkdir()
    (work / "job.yaml").write_text(yaml.safe_dump(JOB))
    return _build(table, work, text)


def build_nodes(table: Path, work: Path, name: str) -> list[Any]:
    """Return the objects of a kustomization for nodes: `nodes`, or `h100` for one pool.

    Raises:
        KubectlMissingError: There is no kubectl.
    """
    work.mkdir()
    return _build(table, work, guide_block(name))


def _build(table: Path, work: Path, text: str) -> list[Any]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise KubectlMissingError("no kubectl")
    shutil.copytree(table, work / "table")
    (work / "kustomization.yaml").write_text(text)
    done = subprocess.run(
        [kubectl, "kustomize", str(work)], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


def mutants(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of an object that are wrong in one place, with what is wrong."""
    for name, change in _CHANGES.get(document["kind"], {}).items():
        changed = copy.deepcopy(document)
        change(changed)
        yield name, changed


def _pod(document: Any) -> Any:
    return document["spec"]["template"]["spec"]


def _first(document: Any) -> Any:
    return _pod(document)["containers"][0]


Changes = dict[str, Callable[[Any], object]]
_CHANGES: dict[str, Changes] = {
    "ConfigMap": {
        "a number as a value": lambda it: it["data"].update(TUCCL_BUNDLE_CRC=42),
        "a name that is no variable": lambda it: it["data"].update({"A-B": "c"}),
        "an unknown field": lambda it: it.update(datas={}),
        "more than it may hold": lambda it: it["data"].update(A="x" * (1 << 20)),
        "a name in capitals": lambda it: it["metadata"].update(name="TuCCL"),
    },
    "DaemonSet": {
        "labels of others": lambda it: it["spec"]["selector"].update(matchLabels={"a": "b"}),
        "no container": lambda it: _pod(it).pop("containers"),
        "an unknown field in a container": lambda it: _first(it).update(imag="x"),
        "no image": lambda it: _first(it).pop("image"),
        "a mount without its volume": lambda it: _pod(it)["volumes"].clear(),
        "a restart policy of jobs": lambda it: _pod(it).update(restartPolicy="Never"),
        "a share as text": lambda it: it["spec"]["updateStrategy"].update(rollingUpdate="25%"),
    },
    "Job": {
        "no restart policy": lambda it: _pod(it).pop("restartPolicy"),
        "a volume twice": lambda it: _pod(it)["volumes"].append(_pod(it)["volumes"][0]),
        "envFrom without a list": lambda it: _first(it).update(envFrom={"name": "x"}),
        "another name for the container": lambda it: _pod(it)["containers"].append({"name": "b"}),
        "a root that must not be one": lambda it: _first(it).update(
            securityContext={"runAsNonRoot": True, "runAsUser": 0}
        ),
    },
}
