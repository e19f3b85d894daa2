"""Rules by which Kubernetes takes or refuses objects: API schemas, validation, Pod Security."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

KINDS = {
    ("v1", "ConfigMap"): "io.k8s.api.core.v1.ConfigMap",
    ("v1", "Pod"): "io.k8s.api.core.v1.Pod",
    ("apps/v1", "DaemonSet"): "io.k8s.api.apps.v1.DaemonSet",
    ("batch/v1", "Job"): "io.k8s.api.batch.v1.Job",
}
"""Names of the schemas by apiVersion and kind."""
_POD = {"$ref": "#/$defs/io.k8s.api.core.v1.PodTemplateSpec"}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of an object that has these fields and no others."""
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "additionalProperties": False,
    }


def _replicas(pod: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the schema of the Kubeflow operators' replicas of these names."""
    each = _object(
        {"replicas": {"type": "integer"}, "template": pod},
        restartPolicy={"enum": ["Never", "OnFailure", "Always", "ExitCode"]},
    )
    return _object(dict.fromkeys(names, each))


def _named(container: str) -> dict[str, Any]:
    """Return the schema of a pod whose operator looks for a container of this name."""
    has = {"contains": {"properties": {"name": {"const": container}}}}
    return {"allOf": [_POD, {"properties": {"spec": {"properties": {"containers": has}}}}]}


OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "MPIJob": (
        "kubeflow.org/v2beta1",
        _object(
            {"mpiReplicaSpecs": _replicas(_POD, "Launcher", "Worker")},
            slotsPerWorker={"type": "integer"},
            launcherCreationPolicy={"enum": ["AtStartup", "WaitForWorkersReady"]},
        ),
    ),
    "PyTorchJob": (
        "kubeflow.org/v1",
        _object(
            {"pytorchReplicaSpecs": _replicas(_named("pytorch"), "Master", "Worker")},
            nprocPerNode={"type": "string"},
        ),
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        _object(
            {
                "replicatedJobs": {
                    "type": "array",
                    "items": _object(
                        {
                            "name": {"type": "string"},
                            "template": _object(
                                {"spec": {"$ref": "#/$defs/io.k8s.api.batch.v1.JobSpec"}}
                            ),
                        }
                    ),
                }
            }
        ),
    ),
}
"""apiVersion of each operator's objects, and the schema of their `spec`, as far as ours have it."""
MOST_CONFIG_MAP_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip


def complaints(document: Any, definitions: dict[str, Any]) -> list[str]:
    """Return why an API server would refuse an object; empty: it would take it.

    Args:
        document: The object.
        definitions: Strict schemas of a release.
    """
    key = (document.get("apiVersion"), document.get("kind"))
    version, spec = OPERATORS.get(key[1], ("", {}))
    if version and key[0] == version:
        fields = {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}, "spec": spec}
        schema = {**_object(fields), "$defs": definitions}
    elif key in KINDS:
        schema = {"$ref": f"#/$defs/{KINDS[key]}", "$defs": definitions}
    else:
        return [f"no schema for {key}"]
    errors = Draft202012Validator(schema).iter_errors(document)
    found = [f"{error.json_path}: {error.message:.200}" for error in errors]
    return found or list(_validation(document))


def pod_of(document: Any) -> Any:
    """Return the pod's spec in an object."""
    spec = document["spec"]
    return spec if document["kind"] == "Pod" else spec["template"]["spec"]


def templates_of(document: Any) -> list[Any]:
    """Return the templates of the pods in an operator's object."""
    spec = document["spec"]
    jobs = [each["template"]["spec"]["template"] for each in spec.get("replicatedJobs", [])]
    replicas = spec.get("mpiReplicaSpecs") or spec.get("pytorchReplicaSpecs") or {}
    return jobs + [each["template"] for each in replicas.values()]


def breaches_of_restricted(pod: Any) -> list[str]:
    """Return why Pod Security's level `restricted` refuses a pod (Pod Security Standards)."""
    found = []
    own = pod.get("securityContext", {})
    for volume in pod.get("volumes", []):
        kinds = volume.keys() - {"name"}
        if not kinds <= _RESTRICTED_VOLUMES:
            found.append(f"volume {volume['name']}: {', '.join(kinds)}")
    for container in _containers(pod):
        context = {**own, **container.get("securityContext", {})}
        rules = {
            "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
            "capabilities": "ALL" in context.get("capabilities", {}).get("drop", []),
            "runAsNonRoot": context.get("runAsNonRoot") is True,
            "runAsUser": context.get("runAsUser") != 0,
            "seccompProfile": context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
        }
        found += [
            f"container {container['name']}: {rule}" for rule, kept in rules.items() if not kept
        ]
    return found


def _validation(document: Any) -> Iterator[str]:
    """Yield what the server validates beside its schemas, as far as our objects have it."""
    if not _NAME.fullmatch(document["metadata"].get("name", "")):
        yield f"metadata.name: {document['metadata'].get('name')!r} is no DNS subdomain"
    if document["kind"] == "ConfigMap":
        data = document.get("data", {})
        yield from (
            f"data: {name} is no variable" for name in data if not _VARIABLE.fullmatch(name)
        )
        if sum(len(name) + len(value) for name, value in data.items()) > MOST_CONFIG_MAP_BYTES:
            yield "data: more than 1 MiB"
        return
    if document["kind"] == "DaemonSet":
        spec = document["spec"]
        labels = spec["template"]["metadata"].get("labels", {})
        if not spec["selector"].get("matchLabels", {}).items() <= labels.items():
            yield "spec.selector: does not match the template's labels"
        yield from (f"label {value!r}" for value in labels.values() if not _LABEL.fullmatch(value))
    if document["kind"] in OPERATORS:
        for template in templates_of(document):
            yield from _pod_validation(template["spec"])
        return
    pod = pod_of(document)
    allowed = {"Job": ("Never", "OnFailure"), "DaemonSet": ("Always",)}.get(document["kind"])
    if allowed and pod.get("restartPolicy", "Always") not in allowed:
        yield f"restartPolicy: {pod.get('restartPolicy', 'Always')}"
    yield from _pod_validation(pod)


def _pod_validation(pod: Any) -> Iterator[str]:
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    names = [container["name"] for container in _containers(pod)]
    for listed in (volumes, names):
        if len(set(listed)) < len(listed):
            yield f"names are not unique: {listed}"
    for container in _containers(pod):
        name = container["name"]
        if not _IMAGE.fullmatch(container.get("image", "")):
            yield f"container {name}: image {container.get('image')!r}"
        mounts = container.get("volumeMounts", [])
        paths = [mount["mountPath"] for mount in mounts]
        if len(set(paths)) < len(paths):
            yield f"container {name}: a mountPath is not unique"
        yield from (f"container {name}: mountPath {path}" for path in paths if ":" in path)
        for mount in mounts:
            if mount["name"] not in volumes:
                yield f"container {name}: no volume {mount['name']}"
        context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
        if context.get("runAsNonRoot") and context.get("runAsUser") == 0:
            yield f"container {name}: runAsNonRoot and runAsUser 0"


def _containers(pod: Any) -> list[Any]:
    return [*pod.get("initContainers", []), *pod["containers"]]
