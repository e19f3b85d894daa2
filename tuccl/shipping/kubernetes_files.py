"""Files for Kubernetes: a DaemonSet that puts the directory on each node, and patches for pods.

Objects are written as YAML by hand, since they are few and have comments; all values are of
characters that YAML takes as they are, or quoted. Image and ConfigMap are named by their contents:
pods of one job have one table, whatever is applied while they start.
"""

from __future__ import annotations

from zlib import crc32

from tuccl.shipping.job_settings import JobSettings
from tuccl.shipping.locating import bundle_name

_FOLDER = "kubernetes"
_NAMES = (
    "Dockerfile",
    "Dockerfile.dockerignore",
    "copy.sh",
    "configmap.yaml",
    "daemonset.yaml",
    "pod-patch.yaml",
    "pod-patch-copy.yaml",
    "kustomization.yaml",
)
KUBERNETES_PATHS = tuple(f"{_FOLDER}/{name}" for name in _NAMES)
"""The files by path in the shipped directory."""
_FILES = "tuccl-files"
_TABLE = "tuccl-table"


def kubernetes_files(settings: JobSettings) -> dict[str, str]:
    """Return the files by path in the shipped directory."""
    texts = (
        _dockerfile(settings),
        _IGNORED,
        _COPY,
        _config_map(settings),
        _daemon_set(settings),
        _pod_patch(settings),
        _copying_patch(settings),
        _kustomization(settings),
    )
    return dict(zip(KUBERNETES_PATHS, texts, strict=True))


def _image_tag(settings: JobSettings) -> str:
    """Return a tag that changes with each file of the image.

    A node keeps an image of a tag that it has, so files of a newer release need another tag.
    """
    return f"{settings.crc:08x}-{crc32(_COPY.encode(), settings.files_crc):08x}"


def _dockerfile(settings: JobSettings) -> str:
    return f"""\
# {settings.title}: the image that nodes and pods copy from. In the shipped directory:
#     docker build -f {_FOLDER}/Dockerfile -t {_FILES}:{_image_tag(settings)} .
FROM busybox:1.36
COPY . /tuccl
USER 65534:65534
"""


_IGNORED = """\
# Earlier tables, which no job loads.
versions
"""


_COPY = """\
#!/bin/sh
# Copies a shipped directory: copy.sh FROM TO. Files are replaced whole, if they differ: those that
# a bundle needs before it, and those that tuccl.env names before tuccl.env. What is there of
# earlier tables stays, since jobs may use it.
set -eu
umask 022
from=$1
to=$2
# shellcheck disable=SC3028 # Container runtimes set it.
partial=$to/.tuccl-partial-${HOSTNAME:-copy}
trap 'rm -f "$partial"' EXIT
trap 'exit 143' TERM
rm -f "$to"/.tuccl-partial-*
put() {
    if cmp -s "$from/$1" "$to/$1"; then return; fi
    mkdir -p "$to/$(dirname "$1")"
    cp "$from/$1" "$partial"
    mv -f "$partial" "$to/$1"
}
cd "$from"
for file in *.so schedules/*.xml table.parquet machine.json bundle-*.tuccl tuccl-????????.env \\
    nccl.conf tuccl.envfile slurm-task-prolog.sh enroot/* kubernetes/* tuccl.env \\
    tuccl-manifest.json; do
    if [ -f "$file" ]; then put "$file"; fi
done
"""


def _config_map_data(settings: JobSettings) -> str:
    variables = settings.variables("kubernetes")
    return "".join(f'  {name}: "{value}"\n' for name, value in variables.items())


def _config_map_name(settings: JobSettings) -> str:
    return f"tuccl-env-{crc32(_config_map_data(settings).encode()):08x}"


def _config_map(settings: JobSettings) -> str:
    return f"""\
# {settings.title}: the variables of a job, in the namespace of the job.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {_config_map_name(settings)}
immutable: true
data:
{_config_map_data(settings)}"""


def _confined(*user: str) -> str:
    """Return fields of a container that policies ask for; without `user` as the pod or image says.

    A job's pod may say that it runs as root, or as a user of its cluster's choice.
    """
    lines = [
        "securityContext:",
        *(f"  {line}" for line in user),
        "  allowPrivilegeEscalation: false",
        "  readOnlyRootFilesystem: true",
        "  capabilities: {drop: [ALL]}",
        "  seccompProfile: {type: RuntimeDefault}",
        "resources:",
        "  requests: {cpu: 1m, memory: 16Mi}",
        "  limits: {cpu: 500m, memory: 128Mi}",
    ]
    return "".join(f"{' ' * 10}{line}\n" for line in lines)


def _daemon_set(settings: JobSettings) -> str:
    image = f"{_FILES}:{_image_tag(settings)}"
    return f"""\
# {settings.title}: copies the directory to {settings.place} of each node.
# Its namespace has to allow hostPath: label pod-security.kubernetes.io/enforce: privileged.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {_FILES}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: {_FILES}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 25%
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {_FILES}
    spec:
      automountServiceAccountToken: false
      nodeSelector:
        kubernetes.io/os: linux
      tolerations:
        - operator: Exists
      initContainers:
        - name: copy
          image: {image}
          command: ["/bin/sh", "/tuccl/{_FOLDER}/copy.sh", "/tuccl", "/host"]
          volumeMounts:
            - name: host
              mountPath: /host
          # The folder on the node belongs to root.
{_confined("runAsUser: 0")}\
      containers:
        - name: keep
          image: {image}
          command: ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"]
{_confined("runAsNonRoot: true")}\
      volumes:
        - name: host
          hostPath:
            path: "{settings.place}"
            type: DirectoryOrCreate
"""


def _pod_patch(settings: JobSettings) -> str:
    bundle = f"{settings.place}/{bundle_name(settings.crc)}"
    return f"""\
# {settings.title}: a patch for the pods of a job. `main` is to be the name of its container.
# A pod waits until its node has this table, since ranks that decide differently hang: the kubelet
# starts it once the paths below exist.
apiVersion: batch/v1
kind: Job
metadata:
  name: any
spec:
  template:
    spec:
      containers:
        - name: main
          envFrom:
            - configMapRef:
                name: {_config_map_name(settings)}
          volumeMounts:
            - name: {_FILES}
              mountPath: "{settings.place}"
              readOnly: true
            - name: {_TABLE}
              mountPath: "{bundle}"
              readOnly: true
      volumes:
        - name: {_FILES}
          hostPath:
            path: "{settings.place}"
            type: Directory
        - name: {_TABLE}
          hostPath:
            path: "{bundle}"
            type: File
"""


def _copying_patch(settings: JobSettings) -> str:
    return f"""\
# {settings.title}: a patch for pods that copy the directory from the image by themselves, for
# namespaces that forbid hostPath, and clusters without the DaemonSet. `main` is to be the name of
# the job's container.
apiVersion: batch/v1
kind: Job
metadata:
  name: any
spec:
  template:
    spec:
      initContainers:
        - name: {_FILES}
          image: {_FILES}:{_image_tag(settings)}
          command: ["/bin/sh", "/tuccl/{_FOLDER}/copy.sh", "/tuccl", "{settings.place}"]
          volumeMounts:
            - name: {_FILES}
              mountPath: "{settings.place}"
{_confined()}\
      containers:
        - name: main
          envFrom:
            - configMapRef:
                name: {_config_map_name(settings)}
          volumeMounts:
            - name: {_FILES}
              mountPath: "{settings.place}"
              readOnly: true
      volumes:
        - name: {_FILES}
          emptyDir: {{}}
"""


def _kustomization(settings: JobSettings) -> str:
    return f"""\
# {settings.title}: the DaemonSet, once per cluster. Name the image's registry in a kustomization of
# your own that has this folder as a resource: the next ship replaces this file.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - daemonset.yaml
images:
  - name: {_FILES}
    newName: {_FILES}
    newTag: "{_image_tag(settings)}"
"""
