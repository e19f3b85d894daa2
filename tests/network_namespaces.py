"""Network namespaces as hosts, joined by cables of known rate and delay.

    host 0 [eth0 10.1.0.1] --- tbf --- tbf --- [bridge of subnet 1]
           [eth1 10.2.0.1] --- tbf --- tbf --- [bridge of subnet 2]
    host 1 [eth0 10.1.0.2] --- delay line ---- [bridge of subnet 1]

The bridges are in a further namespace, which routes between the subnets as 10.S.0.254.
An interface of subnet S on host H (from 0) has the address 10.S.0.(H+1)/24. A rate holds in both
directions: the way out of either end of the cable is shaped. A delay holds in both directions, too,
and adds to that of the other end: from a host with 1000 us to one with 2000 us takes 3000 us.
Hosts may be in two racks: each subnet has a bridge per rack then, joined by a cable of its own.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

DELAY_LINE = Path(__file__).with_name("network_delay_line.py")


@dataclass(frozen=True)
class Interface:
    """One interface of a host."""

    subnet: int = 1
    rate_mbit: float | None = 100
    """Rate of frames on the wire, headers included; None: unlimited."""
    delay_us: float = 0
    """Delay each way. Frames then pass through a process, which limits them to some 100 Mbit/s."""
    rack: int = 0
    """0, or 1 for the second rack."""


class NetworkNamespaces:
    """A context manager that creates the namespaces and removes them at its end."""

    def __init__(
        self,
        hosts: Sequence[Sequence[Interface]],
        between_racks: Interface = Interface(),
    ) -> None:
        """Take the interfaces of each host, and the rate and delay of the cable between racks."""
        for interfaces in hosts:
            if len({interface.subnet for interface in interfaces}) < len(interfaces):
                raise ValueError("two interfaces of one host in one subnet would share an address")
        self.hosts = hosts
        self.between_racks = between_racks
        self._prefix = f"tuccl-{os.getpid()}-"
        self._switch = f"{self._prefix}switch"
        self._line: subprocess.Popen[str] | None = None

    def namespace(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    def address(self, host: int, interface: int = 0) -> str:
        return f"10.{self.hosts[host][interface].subnet}.0.{host + 1}"

    def argv(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on a host."""
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def run(
        self, host: int, command: Sequence[str], timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(host, command),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def set_link(self, host: int, interface: int, *, up: bool) -> None:
        """Set an interface of a host up or down; up restores its default route."""
        _ip("-n", self.namespace(host), "link", "set", f"eth{interface}", "up" if up else "down")
        if up and interface == 0:
            self._default_route(host)

    def ignore_ping(self, host: int, *, ignored: bool = True) -> None:
        value = f"net.ipv4.icmp_echo_ignore_all={int(ignored)}"
        done = self.run(host, ["sysctl", "-q", "-w", value])
        if done.returncode:
            raise RuntimeError(done.stderr)

    def lead_nowhere(self, host: int, interface: int = 0) -> None:
        """Take the far end of a cable from its bridge; the host's end stays up."""
        _ip("-n", self._switch, "link", "set", f"h{host}f{interface}", "nomaster")

    def processes(self, host: int | None = None) -> list[int]:
        """Ids of the processes on a host, or on all of them."""
        hosts = range(len(self.hosts)) if host is None else (host,)
        names = map(self.namespace, hosts)
        return [int(pid) for name in names for pid in _ip("netns", "pids", name).split()]

    def __enter__(self) -> Self:
        remove_stale()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._line is not None:
            self._line.communicate()
        for name in _namespaces():
            if name.startswith(self._prefix):
                _remove(name)

    def _build(self) -> None:
        _ip("netns", "add", self._switch)
        _in(self._switch, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        every = [each for host in self.hosts for each in host]
        for bridge in sorted({_bridge(each.subnet, each.rack) for each in every}):
            _ip("-n", self._switch, "link", "add", bridge, "type", "bridge", "forward_delay", "0")
            _ip("-n", self._switch, "link", "set", bridge, "up")
        for subnet in sorted({each.subnet for each in every}):
            address = f"10.{subnet}.0.254/24"
            _ip("-n", self._switch, "address", "add", address, "dev", _bridge(subnet, 0))
        for host in range(len(self.hosts)):
            _ip("netns", "add", self.namespace(host))
            _ip("-n", self.namespace(host), "link", "set", "lo", "up")
        self._start_delay_line()
        for subnet in self._subnets_in_two_racks():
            self._join_racks(subnet)
        for host, interfaces in enumerate(self.hosts):
            for number, interface in enumerate(interfaces):
                self._connect(host, number, interface)
            self._default_route(host)

    def _subnets_in_two_racks(self) -> list[int]:
        return sorted({each.subnet for host in self.hosts for each in host if each.rack})

    def _join_racks(self, subnet: int) -> None:
        near, far = f"s{subnet}r0", f"s{subnet}r1"
        if not self.between_racks.delay_us:
            _ip("-n", self._switch, "link", "add", near, "type", "veth", "peer", "name", far)
        for rack, end in enumerate((near, far)):
            _ip("-n", self._switch, "link", "set", end, "master", _bridge(subnet, rack), "up")
            if self.between_racks.rate_mbit is not None:
                _shape(self._switch, end, self.between_racks.rate_mbit)

    def _default_route(self, host: int) -> None:
        if self.hosts[host]:
            router = f"10.{self.hosts[host][0].subnet}.0.254"
            _ip("-n", self.namespace(host), "route", "replace", "default", "via", router)

    def _start_delay_line(self) -> None:
        triples = [
            [f"h{host}n{number}", f"h{host}f{number}", str(interface.delay_us)]
            for host, interfaces in enumerate(self.hosts)
            for number, interface in enumerate(interfaces)
            if interface.delay_us
        ]
        if self.between_racks.delay_us:
            delay = str(self.between_racks.delay_us)
            triples += [[f"s{s}r0", f"s{s}r1", delay] for s in self._subnets_in_two_racks()]
        if not triples:
            return
        command = [sys.executable, str(DELAY_LINE), *[word for each in triples for word in each]]
        self._line = subprocess.Popen(
            ["ip", "netns", "exec", self._switch, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._line.stdout is None or self._line.stdout.readline() != "ready\n":
            raise RuntimeError("the delay line did not start")

    def _connect(self, host: int, number: int, interface: Interface) -> None:
        """Attach the far end to the bridge of the subnet and move the near end to the host."""
        namespace, near, far = self.namespace(host), f"h{host}n{number}", f"h{host}f{number}"
        name = f"eth{number}"
        if not interface.delay_us:
            ends = ["link", "add", far, "type", "veth", "peer", "name", near]
            _ip("-n", self._switch, *ends)
        bridge = _bridge(interface.subnet, interface.rack)
        _ip("-n", self._switch, "link", "set", far, "master", bridge, "up")
        _ip("-n", self._switch, "link", "set", near, "netns", namespace, "name", name)
        _ip("-n", namespace, "address", "add", f"{self.address(host, number)}/24", "dev", name)
        _ip("-n", namespace, "link", "set", name, "up")
        if interface.rate_mbit is not None:
            for where, device in ((self._switch, far), (namespace, name)):
                _shape(where, device, interface.rate_mbit)


def _bridge(subnet: int, rack: int) -> str:
    return f"br{subnet}" if not rack else f"br{subnet}r{rack}"


def _shape(namespace: str, device: str, rate_mbit: float) -> None:
    shape = ["rate", f"{rate_mbit:g}mbit", "burst", "32kb", "latency", "20ms"]
    _in(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", *shape)


def remove_stale() -> None:
    """Remove the namespaces of test runs that were killed."""
    for name in _namespaces():
        run = re.match(r"tuccl-(\d+)-", name)
        if run and not Path(f"/proc/{run[1]}").exists():
            _remove(name)


def _remove(name: str) -> None:
    with contextlib.suppress(RuntimeError):  # another run may have removed it
        for pid in _ip("netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "delete", name)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if line.strip()]


def _ip(*words: str) -> str:
    return _checked(["ip", *words])


def _in(namespace: str, *words: str) -> None:
    _checked(["ip", "netns", "exec", namespace, *words])


def _checked(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def why_not() -> str:
    """Why this machine cannot have such hosts; empty if it can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [tool for tool in ("ip", "tc", "ping", "iperf3", "sysctl") if not shutil.which(tool)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun"
    try:
        with NetworkNamespaces([[Interface()]]):
            return ""
    except RuntimeError as error:
        return str(error)


requires_namespaces = pytest.mark.skipif(bool(why_not()), reason=f"network namespaces: {why_not()}")
