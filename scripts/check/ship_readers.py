"""Readers of a shipped table's forms, for check_ship_forms.py: each starts a job by its form.

Where the tool itself is there, it reads the file: shells, docker's command, systemd, mpirun,
enroot, kubectl. What comes after (docker's daemon, the kubelet) is done by hand.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from kubernetes_builds import PATCHES, build_job
from kubernetes_rules import pod_of
from ship_container import BUSYBOX, LOGS, Container, Mount, Outcome, shell_line

from tests.tuccl.shipping.form_readers import (
    docker_env_file,
    enroot_environment,
    fstab,
    slurm_task_prolog,
    systemd_environment_file,
)

JOB = "/bin/job"


@dataclass(frozen=True)
class Node:
    """A node with a shipped directory, and a container on it."""

    shipped: Path
    place: str
    """Where jobs find the directory."""
    container: Container
    work: Path

    @property
    def mounted(self) -> list[Mount]:
        """The directory at its place."""
        return [Mount(self.shipped, self.place)]

    def job(self, variables: Mapping[str, str], *words: str) -> Outcome:
        """Start a job in the container, by `words` if they are given."""
        return self.container.start(self.container.command(words or [JOB], self.mounted), variables)


class ReadingError(Exception):
    """A reader did not take a file."""


class ReaderMissingError(Exception):
    """A reader is not installed, and no rules stand for it."""


Start = Callable[[Node], tuple[str, Outcome]]
"""Starts a job; returns who read the form, and the job."""


def without(node: Node) -> tuple[str, Outcome]:
    """Start a job without a form."""
    return "nothing", node.job({})


def shell(name: str, *words: str) -> Start:
    """Return a starter by a shell that sources `tuccl.env`."""

    def start(node: Node) -> tuple[str, Outcome]:
        _require_in_root(node, words[0])
        script = f"set -eu; . {node.place}/tuccl.env; exec {JOB}"
        return name, node.job({}, *words, "-c", script)

    return start


def docker(node: Node) -> tuple[str, Outcome]:
    """Start a job with what docker's command asks its daemon for."""
    path = node.shipped / "tuccl.envfile"
    program = shutil.which("docker")
    if program is None:
        return "docker's rules", node.job(docker_env_file(path.read_text()))
    with _daemon() as (address, asked):
        done = subprocess.run(
            [program, "create", "--env-file", str(path), "image"],
            env={"DOCKER_HOST": address, "HOME": str(node.work)},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    if done.returncode != 0 or len(asked) != 1:
        raise ReadingError(f"docker: {done.stderr.strip()}")
    variables = dict(line.split("=", 1) for line in asked[0]["Env"])
    return f"{_version([program, '--version'])}; daemon by hand", node.job(variables)


@contextlib.contextmanager
def _daemon() -> Iterator[tuple[str, list[Any]]]:
    """Answer as docker's daemon; yield its address and the containers that are asked for."""
    asked: list[Any] = []

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Keep silent."""

        def do_HEAD(self) -> None:
            self._say(200, b"")

        def do_GET(self) -> None:
            self._say(200, b"OK")

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._say(201, b'{"Id": "made", "Warnings": []}')

        def _say(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Api-Version", "1.43")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    with tempfile.TemporaryDirectory() as folder, Server(f"{folder}/socket", Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"unix://{folder}/socket", asked
        server.shutdown()
        thread.join()


_GENERATORS = Path("/usr/lib/systemd/user-environment-generators")
_SYSTEMD_PARSER = _GENERATORS / "30-systemd-environment-d-generator"


def systemd(node: Node) -> tuple[str, Outcome]:
    """Start a job with what systemd's parser of such files makes of it; verify a unit first.

    No manager starts it: one outside of a cgroup of its own moves all processes of its cgroup.
    """
    file = node.shipped / "tuccl.envfile"
    if not _SYSTEMD_PARSER.exists() or shutil.which("systemd-analyze") is None:
        return "systemd's rules", node.job(systemd_environment_file(file.read_text()))
    unit = node.work / "tuccl-job.service"
    unit.write_text(f"[Service]\nEnvironmentFile=-{file}\nExecStart=/bin/true\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if wrong := [line for line in done.stderr.splitlines() if unit.name in line]:
        raise ReadingError(f"systemd-analyze: {wrong[0]}")
    config = node.work / "config" / "environment.d"
    config.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, config / "50-tuccl.conf")
    done = subprocess.run(
        [str(_SYSTEMD_PARSER)], env={"XDG_CONFIG_HOME": str(config.parent)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0 or done.stderr:
        raise ReadingError(f"systemd's parser: {done.stderr.strip()}")
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines())
    reader = f"{_version(['systemd-analyze', '--version'])} verify, systemd's parser"
    return reader, node.job(variables)


def mpirun(node: Node) -> tuple[str, Outcome]:
    """Start a job by the lines for mpirun in the file's head."""
    file = node.shipped / "tuccl.envfile"
    program = shutil.which("mpirun")
    if program is None:
        raise ReaderMissingError("no mpirun")
    (names,) = re.findall(r"mpirun ((?:-x \S+ )+)\.\.\.", file.read_text())
    job = shell_line(node.container.command([JOB], node.mounted))
    own = " ".join(f"-x {name}" for name in node.container.variables)
    line = f"set -a; . {file}; set +a; {program} --allow-run-as-root -n 1 {own} {names} {job}"
    reader = f"sh and {_version([program, '--version'])}"
    return reader, node.container.start(["/bin/sh", "-euc", line], {"HOME": str(node.work)})


def nccl_conf(node: Node) -> tuple[str, Outcome]:
    """Start a job whose NCCL reads the file."""
    return "the stand-in of NCCL", node.job({"NCCL_CONF_FILE": f"{node.place}/nccl.conf"})


def slurm(node: Node) -> tuple[str, Outcome]:
    """Start a job with what the prolog prints, which runs without a search path."""
    command = node.container.command([f"{node.place}/slurm-task-prolog.sh"], node.mounted)
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        raise ReadingError(f"the prolog: {done.returncode} {done.stderr:.200}")
    return "sh, and slurmd's rules", node.job(slurm_task_prolog(done.stdout))


def enroot(node: Node) -> tuple[str, Outcome]:
    """Start a job in a container of enroot, with our files in a user's environ.d and mounts.d."""
    program = shutil.which("enroot")
    if program is None:
        variables = enroot_environment((node.shipped / "enroot/50-tuccl.env").read_text(), {})
        ((source, target, *_),) = fstab((node.shipped / "enroot/50-tuccl.fstab").read_text())
        command = node.container.command([JOB], [Mount(Path(source), target)])
        return "enroot's rules", node.container.start(command, variables)
    config = node.work / "enroot-config" / "enroot"
    for folder, name in (("environ.d", "50-tuccl.env"), ("mounts.d", "50-tuccl.fstab")):
        (config / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(node.shipped / "enroot" / name, config / folder)
    logs = node.work / "logs"
    (config / "mounts.d" / "60-logs.fstab").write_text(f"{logs} {LOGS} none x-create=dir,bind,rw\n")
    given = [f"--env={name}={value}" for name, value in node.container.variables.items()]
    started = node.container.start(
        [program, "start", *given, node.container.root.name, JOB],
        {
            "PATH": f"{Path(program).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(node.work),
            "XDG_CONFIG_HOME": str(config.parent),
            "XDG_RUNTIME_DIR": str(node.work / "enroot-run"),
            "ENROOT_DATA_PATH": str(node.container.root.parent),
        },
    )
    return _version([program, "version"]), started


def kubernetes(patch: str) -> Start:
    """Return a starter by a pod of a patched job, whose volumes and variables are put by hand."""

    def start(node: Node) -> tuple[str, Outcome]:
        _require_in_root(node, "/bin/busybox")
        with tempfile.TemporaryDirectory(dir=node.work) as folder:
            work = Path(folder)
            built = build_job(node.shipped / "kubernetes", work / "job", patch)
            documents = {document["kind"]: document for document in built}
            host = work / "host"
            pod = pod_of(documents["Job"])
            if patch == PATCHES[0]:
                if not missing_paths(pod, host):
                    raise ReadingError("a pod starts before the DaemonSet has copied")
                _run_daemon_set(node, host, work)
            if missing := missing_paths(pod, host):
                raise ReadingError(f"the pod waits for {', '.join(missing)}")
            outcome = _run_pod(node, pod, documents["ConfigMap"], host, work)
        reader = _version(["kubectl", "version", "--client"])
        return f"{reader} kustomize, {patch}; kubelet by hand", outcome

    return start


def missing_paths(pod: Any, host: Path) -> list[str]:
    """Return the paths of a node for which the kubelet keeps a pod waiting."""
    checks = {"Directory": Path.is_dir, "File": Path.is_file}
    paths = [each["hostPath"] for each in pod["volumes"] if "hostPath" in each]
    return [
        path["path"]
        for path in paths
        if path["type"] in checks and not checks[path["type"]](host / path["path"].lstrip("/"))
    ]


def _run_daemon_set(node: Node, host: Path, work: Path) -> None:
    daemon = _yaml(node.shipped / "kubernetes" / "daemonset.yaml")
    pod = pod_of(daemon)
    for container in pod["initContainers"]:
        _run_of_image(node, container, _folders(pod, host, work / "daemon"), 0)


def _run_pod(node: Node, pod: Any, config_map: Any, host: Path, work: Path) -> Outcome:
    folders = _folders(pod, host, work / "pod")
    user = pod["securityContext"]["runAsUser"]
    for container in pod.get("initContainers", []):
        _run_of_image(node, container, folders, user)
    (container,) = pod["containers"]
    (source,) = container["envFrom"]
    if source["configMapRef"]["name"] != config_map["metadata"]["name"]:
        raise ReadingError(f"no ConfigMap {source['configMapRef']['name']}")
    command = node.container.command([JOB], _mounts(container, folders), user)
    return node.container.start(command, config_map["data"])


def _run_of_image(node: Node, container: Any, folders: dict[str, Path], user: int) -> None:
    """Run an init container: busybox with the shipped directory at /tuccl."""
    shell_path, *rest = container["command"]
    if shell_path != "/bin/sh":
        raise ReadingError(f"the image has no {shell_path}")
    mounts = [Mount(node.shipped, "/tuccl"), *_mounts(container, folders)]
    words = ["/bin/env", f"PATH={BUSYBOX}", "HOSTNAME=pod-x7k2p", "/bin/busybox", "sh", *rest]
    done = subprocess.run(
        node.container.command(words, mounts, user), capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or done.stderr:
        raise ReadingError(f"{container['name']}: {done.returncode} {done.stderr:.300}")


def _folders(pod: Any, host: Path, own: Path) -> dict[str, Path]:
    """Return the paths of a pod's volumes, made where the kubelet makes them."""
    folders = {}
    for volume in pod["volumes"]:
        if "hostPath" in volume:
            folder = host / volume["hostPath"]["path"].lstrip("/")
            if volume["hostPath"]["type"] == "DirectoryOrCreate":
                folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = own / volume["name"]
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        folders[volume["name"]] = folder
    return folders


def _mounts(container: Any, folders: dict[str, Path]) -> list[Mount]:
    return [
        Mount(folders[mount["name"]], mount["mountPath"], writable=not mount.get("readOnly", False))
        for mount in container["volumeMounts"]
    ]


def _require_in_root(node: Node, program: str) -> None:
    if not (node.container.root / program.lstrip("/")).exists():
        raise ReaderMissingError(f"no {Path(program).name}")


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _version(command: Sequence[str]) -> str:
    """Return the first number in what a command prints, after the name of its program."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)*", done.stdout)
    return f"{Path(command[0]).name} {found[0] if found else ''}".strip()


STARTS: dict[str, Sequence[Start]] = {
    "none": [without],
    "tuccl.env": [shell("dash", "/bin/dash"), shell("bash", "/bin/bash"),
                  shell("busybox sh", "/bin/busybox", "sh")],
    "env": [docker, systemd, mpirun],
    "nccl-conf": [nccl_conf],
    "slurm": [slurm],
    "enroot": [enroot],
    "kubernetes": [kubernetes(patch) for patch in PATCHES],
}  # fmt: skip
"""Starters by form."""
