"""Objects of the Kubernetes form, held against the API's schemas, and the script of its image."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.printed_commands import parser, refusal
from tests.tuccl.shipping.job_roots import PLACE, run_of_one_rank
from tests.tuccl.shipping.kubernetes_builds import (
    JOB,
    PATCHES,
    KubectlMissingError,
    build_job,
    build_nodes,
    guide_object,
)
from tests.tuccl.shipping.kubernetes_rules import (
    OPERATORS,
    breaches_of_restricted,
    complaints,
    pod_of,
    templates_of,
)
from tuccl.runtime import plugin_path
from tuccl.shipping import shipment
from tuccl.shipping.forms import Form
from tuccl.shipping.manifest import read_manifest
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_view import changed_files
from tuccl.workspace.runs import Run

pytestmark = pytest.mark.long

SCHEMAS = Path(__file__).with_name("kubernetes_schemas.json")
"""Schemas of Kubernetes 1.37, of kubernetes-validate, without descriptions."""
SHELLS = {"sh": ["/bin/sh"], "busybox": ["busybox", "sh"]}


@pytest.fixture(scope="module")
def definitions() -> Any:
    return json.loads(SCHEMAS.read_text())["definitions"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_of_one_rank(tmp_path / "run")


@pytest.fixture
def shipped(run: Run, tmp_path: Path) -> Path:
    """A table in all forms, for jobs that find it at PLACE."""
    ship(run, tmp_path / "shipped", forms=tuple(Form), place=Path(PLACE))
    return tmp_path / "shipped"


def plain(shipped: Path, name: str) -> Any:
    return yaml.safe_load((shipped / "kubernetes" / name).read_text())


@pytest.fixture(params=PATCHES)
def built(shipped: Path, tmp_path: Path, request: pytest.FixtureRequest) -> list[Any]:
    """Objects that kustomize builds of a job as the guide says, with each of the patches."""
    try:
        return build_job(shipped / "kubernetes", tmp_path / "job", request.param)
    except KubectlMissingError as error:
        pytest.skip(str(error))


def kind(documents: list[Any], name: str) -> Any:
    (found,) = (document for document in documents if document["kind"] == name)
    return found


def test_the_api_takes_the_objects(shipped: Path, definitions: Any) -> None:
    for name in ("configmap.yaml", "daemonset.yaml"):
        document = plain(shipped, name)
        assert complaints(document, definitions) == []
        assert complaints({**document, "unknown": 1}, definitions)


def test_the_api_takes_a_patched_job_which_has_all_that_it_names(
    built: list[Any], definitions: Any
) -> None:
    assert len(built) == 2
    for document in built:
        assert complaints(document, definitions) == []
    pod = pod_of(kind(built, "Job"))
    (container,) = pod["containers"]
    assert container["image"] == pod_of(JOB)["containers"][0]["image"]
    reference = container["envFrom"][0]["configMapRef"]
    assert reference == {"name": kind(built, "ConfigMap")["metadata"]["name"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert all(mounts[path]["readOnly"] for path in mounts if path.startswith(PLACE))
    variables = kind(built, "ConfigMap")["data"]
    assert set(mounts) - {"/data", PLACE} <= {variables["TUCCL_BUNDLE"]}
    assert Path(variables["NCCL_TUNER_PLUGIN"]).parent == Path(PLACE)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_operator_takes_the_object_that_tunes(name: str, definitions: Any) -> None:
    document = guide_object(name)
    assert complaints(document, definitions) == []
    assert complaints({**document, "unknown": 1}, definitions)
    broken = json.loads(json.dumps(document))
    templates_of(broken)[0]["spec"]["containers"][0]["comand"] = []
    assert complaints(broken, definitions), "its pods are compared with the API's schema"


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_object_that_tunes_starts_tuccl_on_all_gpus_of_two_nodes(name: str) -> None:
    pods = [template["spec"] for template in templates_of(guide_object(name))]
    of_gpus = [pod for pod in pods if "resources" in pod["containers"][0]]
    for pod in of_gpus:
        (container,) = pod["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounted["workspace"] == "/workspace"
        assert {volume["name"] for volume in pod["volumes"]} == set(mounted) == {"workspace", "shm"}
    words = [pod["containers"][0].get("command", []) for pod in pods]
    commands = [each[each.index("tuccl") :] for each in words if each]
    assert commands
    for each in commands:
        assert each == ["tuccl", "init", "--workspace", "/workspace"]
        assert refusal(parser(), tuple(each)) is None


def test_pod_security_takes_pods_that_copy_and_refuses_paths_of_the_host(
    built: list[Any], request: pytest.FixtureRequest
) -> None:
    assert breaches_of_restricted(pod_of(JOB)) == []
    copies = "pod-patch-copy.yaml" in request.node.name
    found = breaches_of_restricted(pod_of(kind(built, "Job")))
    expected = [f"volume {name}: hostPath" for name in ("tuccl-files", "tuccl-table")]
    assert found == ([] if copies else expected)
    images = [each["image"] for each in pod_of(kind(built, "Job")).get("initContainers", [])]
    assert all(image.startswith("registry.example.com/tuccl-files:") for image in images)
    assert len(images) == copies


def test_a_pod_waits_for_the_bundle_on_its_node(shipped: Path) -> None:
    (bundle,) = shipped.glob("bundle-*.tuccl")
    volumes = {
        each["name"]: each["hostPath"] for each in pod_of(plain(shipped, PATCHES[0]))["volumes"]
    }
    assert volumes == {
        "tuccl-files": {"path": PLACE, "type": "Directory"},
        "tuccl-table": {"path": f"{PLACE}/{bundle.name}", "type": "File"},
    }
    copied = (shipped / "kubernetes" / "copy.sh").read_text().partition("for file in")[2]
    assert copied.index("*.so ") < copied.index("bundle-*.tuccl") < copied.index(" tuccl.env ")


@pytest.mark.parametrize(("name", "suffix"), [("nodes", ""), ("h100", "-h100")])
def test_nodes_have_the_image_of_the_registry_and_a_pool_its_own_daemon_set(
    shipped: Path, tmp_path: Path, definitions: Any, name: str, suffix: str
) -> None:
    try:
        (daemon,) = build_nodes(shipped / "kubernetes", tmp_path / name, name)
    except KubectlMissingError as error:
        pytest.skip(str(error))
    assert complaints(daemon, definitions) == []
    found = daemon["metadata"]
    assert (found["namespace"], found["name"]) == ("tuccl-system", f"tuccl-files{suffix}")
    pod, image = pod_of(daemon), image_and_config_map(shipped)[0]
    containers = [*pod["initContainers"], *pod["containers"]]
    assert {each["image"] for each in containers} == {f"registry.example.com/{image}"}
    assert ("pool" in daemon["spec"]["selector"]["matchLabels"]) is bool(suffix)
    assert ("nvidia.com/gpu.product" in pod["nodeSelector"]) is bool(suffix)


def test_containers_of_the_image_have_no_rights_that_they_do_not_need(shipped: Path) -> None:
    daemon = pod_of(plain(shipped, "daemonset.yaml"))
    assert daemon["automountServiceAccountToken"] is False
    assert breaches_of_restricted(daemon) == [
        "volume host: hostPath", "container copy: runAsNonRoot", "container copy: runAsUser",
    ]  # fmt: skip
    assert "USER 65534:65534" in (shipped / "kubernetes" / "Dockerfile").read_text()


def image_and_config_map(directory: Path) -> tuple[str, str]:
    (copying,) = pod_of(plain(directory, "daemonset.yaml"))["initContainers"]
    tag = str(copying["image"])
    assert f"-t {tag} ." in (directory / "kubernetes" / "Dockerfile").read_text()
    assert plain(directory, "kustomization.yaml")["images"][0]["newTag"] in tag
    return tag, str(plain(directory, "configmap.yaml")["metadata"]["name"])


def test_another_plugin_for_the_same_table_is_another_image(
    run: Run, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that have an image of a tag do not pull it again."""
    image, config_map = image_and_config_map(shipped)
    ship(run, shipped, place=Path(PLACE))
    assert image_and_config_map(shipped) == (image, config_map)
    newer = tmp_path / "newer.so"
    newer.write_bytes(plugin_path().read_bytes() + b"newer")
    monkeypatch.setattr(shipment, "plugin_path", lambda: newer)
    ship(run, shipped, place=Path(PLACE))
    again, same = image_and_config_map(shipped)
    assert again != image
    assert same == config_map


def test_a_config_map_is_never_changed(run: Run, shipped: Path) -> None:
    first = plain(shipped, "configmap.yaml")
    assert first["immutable"] is True
    ship(run, shipped, place=Path("/var/lib/tuccl"))
    assert plain(shipped, "configmap.yaml")["metadata"] != first["metadata"]


def copy_files(shell: list[str], source: Path, target: Path, umask: int = 0o22) -> None:
    script = source / "kubernetes" / "copy.sh"
    subprocess.run([*shell, str(script), str(source), str(target)], check=True, umask=umask)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_image_puts_all_files_there_for_all_users_and_replaces_none_in_vain(
    shipped: Path, tmp_path: Path, shell: str
) -> None:
    if shutil.which(SHELLS[shell][0]) is None:
        pytest.skip(f"no {shell}")
    node = tmp_path / "node"
    node.mkdir()
    (node / ".tuccl-partial-tuccl-files-x7k2p").write_text("of a copy that was killed")
    copy_files(SHELLS[shell], shipped, node, umask=0o77)
    manifest = read_manifest(node)
    assert manifest is not None
    assert list(changed_files(node, tuple(manifest.files))) == []
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in node.rglob("*"))
    assert os.access(node / "slurm-task-prolog.sh", os.X_OK)
    assert not list(node.glob(".tuccl-partial-*"))
    first = {path: path.stat().st_ino for path in node.rglob("*")}
    (node / "tuccl.env").write_text("damaged")
    copy_files(SHELLS[shell], shipped, node)
    changed = [path.name for path, inode in first.items() if path.stat().st_ino != inode]
    assert changed == ["tuccl.env"]
