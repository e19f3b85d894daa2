"""Objects that kustomize builds of a shipped table as the guide says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "kubernetes.md"
PATCHES = ("pod-patch.yaml", "pod-patch-copy.yaml")
_BLOCK = re.compile(
    r"^```yaml\n# (\S+)/kustomization\.yaml.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
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


def guide_object(kind: str) -> Any:
    """Return the object of a kind as the guide prints it.

    Raises:
        LookupError: The guide has none.
    """
    for text in _YAML.findall(GUIDE.read_text()):
        found = yaml.safe_load(text)
        if isinstance(found, dict) and found.get("kind") == kind:
            return found
    raise LookupError(f"{GUIDE} has no {kind}")


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
