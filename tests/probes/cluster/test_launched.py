"""Workers behind a launcher: their answers, and the reasons of those that do not answer."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from probes.cluster.crew import HostFailure
from probes.cluster.launched import LaunchedCrew, launch_command
from probes.cluster.messages import Done, Look, Looked, Stop, version
from probes.host.probe import HostProbeOptions
from probes.host.report_json import report_from_json
from tuccl.errors import MachineError

pytestmark = pytest.mark.long

WORKER = "env HOST={host}"
LOOK = Look(options=HostProbeOptions(measure_p2p=False))


@contextmanager
def crew(names: list[str], launcher: str) -> Iterator[LaunchedCrew]:
    started = LaunchedCrew(names, launcher)
    try:
        yield started
    finally:
        started.close()


def reason(launcher: str, timeout_s: float = 10.0) -> str:
    """Reason why a host cannot be used."""
    with crew(["box"], launcher) as launched:
        (answer,) = launched.ask({0: Stop()}, timeout_s).values()
        assert isinstance(answer, HostFailure)
        assert answer.name == "box"
        again = launched.ask({0: Stop()}, timeout_s)
        assert again == {0: answer}, "a host that failed once is not asked again"
        return answer.reason


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_the_worker_command_follows_the_launcher_or_replaces_the_placeholder() -> None:
    worker = [sys.executable, "-P", "-m", "probes.cluster.worker"]
    assert launch_command("ssh -p 22 {host}", "n1") == ["ssh", "-p", "22", "n1", *worker]
    assert launch_command("at {host} {command} now", "n1") == ["at", "n1", *worker, "now"]
    quoted = launch_command("sh -c 'cd /x && {command} # {host}'", "n1", "/opt/py")
    assert quoted == ["sh", "-c", "cd /x && /opt/py -P -m probes.cluster.worker # n1"]


@pytest.mark.parametrize(
    ("launcher", "message"), [("ssh node1", "{host}"), ("ssh '{host}", "quotes")]
)
def test_a_launcher_that_cannot_work_is_refused(launcher: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        launch_command(launcher, "n1")


@pytest.mark.parametrize("host", ["-oProxyCommand=reboot", "n1;reboot", "$(reboot)", "n1\\", ""])
def test_a_host_name_that_is_an_option_or_a_command_is_refused(host: str) -> None:
    with pytest.raises(MachineError, match="host"):
        launch_command("ssh {host}", host)


@pytest.mark.parametrize("host", ["node-01.rack_2", "me@n1", "10.0.0.1", "fe80::1%eth0"])
def test_names_and_addresses_of_hosts_are_taken(host: str) -> None:
    assert launch_command("ssh {host}", host)[1] == host


@pytest.fixture
def few_files() -> Iterator[int]:
    """A low soft limit of open files below a higher hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(list(Path("/proc/self/fd").iterdir())) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_hosts_take_more_files_than_a_process_starts_with(few_files: int) -> None:
    names = [f"n{number}" for number in range(few_files // 2)]
    with crew(names, "sh -c 'exit 3' {host}") as many:
        answers = many.ask(dict.fromkeys(range(len(names)), Stop()), 30)
    assert set(answers.values()) == {
        HostFailure(name, "the launcher ended with exit code 3") for name in names
    }


def test_more_hosts_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(MachineError, match=r"1,000 hosts take 3100 open files .* may open 1024"):
        LaunchedCrew([f"n{number}" for number in range(1000)], "false {host}")


def test_an_interrupted_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    before, popen = children(), subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        if "third" in command:
            raise KeyboardInterrupt
        return popen(command, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        LaunchedCrew(["first", "second", "third"], "sh -c cat {host}")
    assert children() == before


def test_hosts_answer_all_at_once_and_end_when_the_crew_is_closed() -> None:
    before = children()
    with crew(["a", "b", "c"], WORKER) as three:
        answers = three.ask({2: LOOK, 0: Stop()}, 30)
        assert list(answers) == [2, 0]
        assert answers[0] == Done()
        looked = answers[2]
        assert isinstance(looked, Looked)
        assert report_from_json(looked.report, "c").topology.devices
    assert children() == before


def test_a_greeting_of_the_login_shell_is_no_message() -> None:
    launcher = """sh -c 'echo "Welcome to {host}!"; exec "$@"' sh"""
    with crew(["a"], launcher) as launched:
        assert launched.ask({0: Stop()}, 30) == {0: Done()}


def test_a_launcher_that_fails_is_quoted() -> None:
    text = reason("sh -c 'echo first; echo no route to {host} >&2; exit 255'")
    assert text == "the launcher ended with exit code 255: no route to box"


def test_a_worker_that_cannot_start_says_what_is_missing() -> None:
    text = reason("env -C / PYTHONPATH=/nowhere " + f"{sys.executable} -S -c 'import {{host}}'")
    assert text.startswith("the launcher ended with exit code 1: ModuleNotFoundError")


def test_a_launcher_that_does_not_exist_is_named() -> None:
    text = reason("no-such-launcher {host}")
    assert text.startswith("the launcher cannot be started: no-such-launcher: No such file")


def test_a_host_that_hangs_is_named_after_its_timeout_and_leaves_no_process() -> None:
    before, started = children(), time.monotonic()
    text = reason("sh -c 'echo password: >&2; sleep 60' {host}", timeout_s=2.0)
    assert text == "no answer within 2 s: password:"
    assert time.monotonic() - started < 30
    assert children() == before


def test_a_worker_that_is_stopped_is_named_and_the_others_answer() -> None:
    with crew(["good", "stuck"], WORKER) as two:
        assert two.ask({0: Stop(), 1: Stop()}, 30) == {0: Done(), 1: Done()}
        stuck = next(
            child for child in psutil.Process().children() if child.environ().get("HOST") == "stuck"
        )
        os.kill(stuck.pid, signal.SIGSTOP)
        answers = two.ask({0: Stop(), 1: Stop()}, 2.0)
        assert answers == {0: Done(), 1: HostFailure("stuck", "no answer within 2 s")}
        os.kill(stuck.pid, signal.SIGCONT)
        assert two.ask({0: Stop()}, 10) == {0: Done()}


def test_another_release_is_refused_with_both_named() -> None:
    line = '{"version": "TuCCL 9.9, messages 8", "number": 1, "body": {"reply": "done"}}'
    text = reason(f"sh -c 'echo \"$1\"; sleep 60' {{host}} {line!r}")
    assert text.startswith(f"box runs TuCCL 9.9, messages 8, this side {version()}: install")


def test_a_damaged_reply_is_named() -> None:
    line = f'{{"version": "{version()}", "number": 1, "body": {{"reply": "looked"}}}}'
    text = reason(f"sh -c 'echo \"$1\"; sleep 60' {{host}} {line!r}")
    assert text == "box sent a damaged message: looked.report: Field required"
