"""Host processes behind a launcher: the reasons of those that do not answer."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from lookup_tables.collective import Collective
from tests.runtime.builds import compile_native
from tuccl.crew import launched
from tuccl.crew.asking import Lost
from tuccl.crew.connection import VERSION
from tuccl.crew.hosting import nearest_first
from tuccl.crew.launched import LaunchedPlaces, launch_command
from tuccl.crew.messages import Done
from tuccl.crew.probe_station import Stop
from tuccl.errors import MachineError
from tuccl.measuring.backends.workers_backend import WorkersOptions, open_workers_backend
from tuccl.measuring.workers.seating import whole_shape
from tuccl.search.trials.config import Config, Task
from tuccl.workspace.measurement_log import MeasurementLog

pytestmark = pytest.mark.long

HOST = "env HOST={host}"
CLOCK = Path(__file__).with_name("clock_ahead.c")


def reason(launcher: str, timeout_s: float = 20.0) -> str:
    """Reason why a host cannot be used."""
    with closing(LaunchedPlaces(["box"], launcher)) as box:
        (answer,) = box.ask({0: Stop()}, timeout_s).values()
        assert isinstance(answer, Lost)
        assert answer.name == "box"
        again = box.ask({0: Stop()}, timeout_s)
        assert again == {0: answer}, "a host that failed once is not asked again"
        return answer.reason


@pytest.fixture
def no_long_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """For launchers that sleep, and so do not end by themselves."""
    monkeypatch.setattr(launched, "_GOODBYE_S", 0.1)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_the_hosts_command_follows_the_launcher_or_replaces_the_placeholder() -> None:
    host = [sys.executable, "-P", "-m", "tuccl.crew.worker", "host"]
    assert launch_command("ssh -p 22 {host}", "n1") == ["ssh", "-p", "22", "n1", *host]
    assert launch_command("at {host} {command} now", "n1") == ["at", "n1", *host, "now"]
    quoted = launch_command("sh -c 'cd /x && {command} # {host}'", "n1", "/opt/py")
    assert quoted == ["sh", "-c", "cd /x && /opt/py -P -m tuccl.crew.worker host # n1"]


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
    with closing(LaunchedPlaces(names, "sh -c 'exit 3' {host}")) as many:
        answers = many.ask(dict.fromkeys(range(len(names)), Stop()), 30)
    assert set(answers.values()) == {Lost(name, "the launcher ended with exit 3") for name in names}


def test_more_hosts_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(MachineError, match=r"1,000 hosts take 3100 open files .* may open 1024"):
        LaunchedPlaces([f"n{number}" for number in range(1000)], "false {host}")


def test_an_interrupted_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    before, popen = children(), subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        if "third" in command:
            raise KeyboardInterrupt
        return popen(command, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        LaunchedPlaces(["first", "second", "third"], "sh -c cat {host}")
    assert children() == before


def test_a_greeting_of_the_login_shell_is_no_message() -> None:
    launcher = """sh -c 'echo "Welcome to {host}!"; exec "$@"' sh"""
    with closing(LaunchedPlaces(["a"], launcher)) as launched:
        assert launched.ask({0: Stop()}, 30) == {0: Done()}


def test_a_launcher_that_fails_is_quoted() -> None:
    text = reason("sh -c 'echo first; echo no route to {host} >&2; exit 255'")
    assert text == "the launcher ended with exit 255: no route to box"


def test_what_a_host_says_does_not_steer_the_terminal() -> None:
    said = r"\033]0;title\007\033[31mno\033[0m route\033[2J\033(B\r\b"
    text = reason(f"""sh -c "printf '{said}' >&2; exit 255" {{host}}""")
    assert text == "the launcher ended with exit 255: no route??"


def test_a_host_that_cannot_start_says_what_is_missing() -> None:
    text = reason("env -C / PYTHONPATH=/nowhere " + f"{sys.executable} -S -c 'import {{host}}'")
    assert text.startswith("the launcher ended with exit 1: ModuleNotFoundError")


def test_a_launcher_that_does_not_exist_is_named() -> None:
    text = reason("no-such-launcher {host}")
    assert text.startswith("the launcher cannot be started: no-such-launcher: No such file")


@pytest.mark.usefixtures("no_long_goodbye")
def test_a_host_that_hangs_is_named_after_its_timeout_and_leaves_no_process() -> None:
    before, started = children(), time.monotonic()
    text = reason("sh -c 'echo password: >&2; sleep 60' {host}", timeout_s=1.0)
    assert text == "no answer within 1 s: password:"
    assert time.monotonic() - started < 30
    assert children() == before


def test_a_host_that_is_stopped_is_named_and_the_others_answer() -> None:
    with closing(LaunchedPlaces(["good", "stuck"], HOST)) as two:
        assert two.ask({0: Stop(), 1: Stop()}, 30) == {0: Done(), 1: Done()}
        stuck = next(
            child for child in psutil.Process().children() if child.environ().get("HOST") == "stuck"
        )
        os.kill(stuck.pid, signal.SIGSTOP)
        answers = two.ask({0: Stop(), 1: Stop()}, 2.0)
        assert answers == {0: Done(), 1: Lost("stuck", "no answer within 2 s")}
        os.kill(stuck.pid, signal.SIGCONT)
        assert two.ask({0: Stop()}, 10) == {0: Done()}


@pytest.fixture(scope="module")
def other_clocks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A launcher: the clock of the host `ahead` is a day ahead; root's host booted a day before."""
    clock = compile_native(tmp_path_factory.mktemp("clock") / "clock.so", [CLOCK], "-shared")
    booted = "unshare --time --monotonic 86400 --fork --kill-child"
    allowed = subprocess.run([*booted.split(), "true"], capture_output=True, check=False)
    words = f"env LD_PRELOAD={clock} {booted if allowed.returncode == 0 else ''}"
    return f"""sh -c 'test $0 = ahead && exec {words} "$@"; exec "$@"' {{host}}"""


def test_hosts_measure_together_though_their_clocks_differ(
    tmp_path: Path, other_clocks: str
) -> None:
    ask = [sys.executable, "-S", "-c", "import time; print(time.time())"]
    words = launch_command(other_clocks, "ahead")[:4]
    asked = subprocess.run([*words, *ask], capture_output=True, check=True)
    assert float(asked.stdout) - time.time() == pytest.approx(86_400, abs=60)
    with closing(LaunchedPlaces(["here", "ahead"], other_clocks)) as places:
        config, began = Config("ring", "Simple", 1), time.monotonic()
        with (
            open_workers_backend("sockets", places, WorkersOptions()) as backend,
            MeasurementLog(tmp_path / "log", backend, "run") as log,
        ):
            task = Task(Collective.ALL_REDUCE, 12_288, whole_shape(places.places))
            log.check(task, config)
            took_us = log.measure(task, config, 3).samples_us
            assert backend.incidents == []
        assert all(0.0 < each < (time.monotonic() - began) * 1e6 for each in took_us)


@pytest.mark.usefixtures("no_long_goodbye")
def test_another_release_is_refused_with_both_named() -> None:
    text = reason("sh -c 'printf \"\\0TuCCL\\0TuCCL 9.9, crew 8\\0\\n\"; sleep 60' {host}")
    assert text.startswith(f"it runs TuCCL 9.9, crew 8, this side {VERSION}: install")


@pytest.mark.usefixtures("no_long_goodbye")
def test_what_is_no_message_is_named() -> None:
    greeting = f"\\0TuCCL\\0{VERSION}\\0\\n"
    text = reason(f"sh -c 'printf \"{greeting}\\0\\0\\0\\002{{{{}}}}\"; sleep 60' {{host}}")
    assert text.startswith("received something that is not a message")


def test_workers_try_the_address_from_which_ssh_came_first() -> None:
    addresses = (("192.0.2.1", 7), ("10.0.0.1", 7), ("127.0.0.1", 7))
    assert nearest_first(addresses, {"SSH_CONNECTION": "10.0.0.1 5022 10.0.0.2 22"}) == (
        addresses[1],
        addresses[0],
        addresses[2],
    )
    assert nearest_first(addresses, {}) == addresses
