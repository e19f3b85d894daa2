"""Files for Kubernetes: a ConfigMap of variables, a DaemonSet that puts the directory on each node.

Objects are written as YAML by hand, since they are few and have comments; all values are of
characters that YAML takes as they are, or quoted.
"""

from __future__ import annotations

from tuccl.shipping.job_settings import JobSettings

_FOLDER = "kubernetes"
_NAMES = (
    "Dockerfile",
    "Dockerfile.dockerignore",
    "copy.sh",
    "configmap.yaml",
    "daemonset.yaml",
    "pod-patch.yaml",
    "kustomization.yaml",
)
KUBERNETES_PATHS = tuple(f"{_FOLDER}/{name}" for name in _NAMES)
"""The files by path in the shipped directory."""
CONFIG_MAP = "tuccl-env"
_FILES = "tuccl-files"


def kubernetes_files(settings: JobSettings) -> dict[str, str]:
    """Return the files by path in the shipped directory."""
    texts = (
        _dockerfile(settings),
        _IGNORED,
        _COPY,
        _config_map(settings),
        _daemon_set(settings),
        _pod_patch(settings),
        _kustomization(settings),
    )
    return dict(zip(KUBERNETES_PATHS, texts, strict=True))


def _dockerfile(settings: JobSettings) -> str:
    return f"""\
# {settings.title}: the image that the DaemonSet copies from. In the shipped directory:
#     docker build -f {_FOLDER}/Dockerfile -t {_FILES}:{settings.crc:08x} .
FROM busybox:1.36
COPY . /tuccl
"""


_IGNORED = """\
# Earlier tables, which no job loads.
versions
"""


_COPY = """\
#!/bin/sh
# Copies a shipped directory: copy.sh FROM TO. Files are replaced whole, those that tuccl.env names
# before tuccl.env; what is there of earlier tables stays, since jobs may use it.
set -eu
from=$1
to=$2
put() {
    mkdir -p "$to/$(dirname "$1")"
    cp "$from/$1" "$to/.tuccl-partial-copy"
    mv -f "$to/.tuccl-partial-copy" "$to/$1"
}
cd "$from"
for file in bundle-*.tuccl schedules/*.xml table.parquet tuccl-????????.env *.so \\
    nccl.conf tuccl.envfile slurm-task-prolog.sh enroot/* tuccl.env tuccl-manifest.json; do
    if [ -f "$file" ]; then put "$file"; fi
done
"""


def _config_map(settings: JobSettings) -> str:
    variables = settings.variables("kubernetes")
    data = "".join(f'  {name}: "{value}"\n' for name, value in variables.items())
    return f"""\
# {settings.title}: the variables of a job.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {CONFIG_MAP}
data:
{data}"""


def _daemon_set(settings: JobSettings) -> str:
    return f"""\
# {settings.title}: copies the directory to {settings.place} of each node.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {_FILES}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: {_FILES}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {_FILES}
    spec:
      tolerations:
        - operator: Exists
      initContainers:
        - name: copy
          image: {_FILES}:{settings.crc:08x}
          command: ["/bin/sh", "/tuccl/{_FOLDER}/copy.sh", "/tuccl", "/host"]
          volumeMounts:
            - name: host
              mountPath: /host
      containers:
        - name: keep
          image: {_FILES}:{settings.crc:08x}
          command: ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"]
          resources:
            requests:
              cpu: 1m
              memory: 8Mi
      volumes:
        - name: host
          hostPath:
            path: "{settings.place}"
            type: DirectoryOrCreate
"""


def _pod_patch(settings: JobSettings) -> str:
    return f"""\
# {settings.title}: a patch for the pods of a job. `main` is to be the name of its container.
# A node without the directory, and a namespace without the ConfigMap, cost the table, not the job.
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
                name: {CONFIG_MAP}
                optional: true
          volumeMounts:
            - name: {_FILES}
              mountPath: "{settings.place}"
              readOnly: true
      volumes:
        - name: {_FILES}
          hostPath:
            path: "{settings.place}"
            type: DirectoryOrCreate
"""


def _kustomization(settings: JobSettings) -> str:
    return f"""\
# {settings.title}. Set newName to where the image was pushed to.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - daemonset.yaml
  - configmap.yaml
images:
  - name: {_FILES}
    newName: {_FILES}
    newTag: "{settings.crc:08x}"
"""
