"""The duty of a process that joins a Ray cluster, and starts a host process on each node with GPUs.

No other process of the crew imports ray: what Ray prints, how it treats signals and where it hangs
stays in this one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, ClassVar

from probes.inputs.messages import printable, without_escapes
from probes.inputs.natural_order import natural_key
from tuccl.crew.connection import Address, Greeting, connect
from tuccl.crew.hosting import serve_as_host
from tuccl.crew.messages import Done, Failed, Request

CONNECT_S = 5.0
"""Time for a port to take a connection."""
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster."""

    name: str
    """Its host's name; numbered from the second of a name on."""
    gpus: int


@dataclass(frozen=True, slots=True)
class RayNodes:
    """The nodes that have GPUs, by name."""

    nodes: tuple[RayNode, ...]


@dataclass(frozen=True, slots=True)
class JoinRay(Request):
    """Join a cluster."""

    duty: ClassVar[str] = "ray"
    answer: ClassVar[type[Any]] = RayNodes
    address: str
    """`auto`: what RAY_ADDRESS says, or the cluster that this host belongs to."""


@dataclass(frozen=True, slots=True)
class StartOnNodes(Request):
    """Start a host process on each node, which takes all GPUs of the node and connects."""

    duty: ClassVar[str] = "ray"
    addresses: tuple[Address, ...]
    key: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """How far the host process of a node is."""

    started: bool
    ended: str
    """How it ended, half a sentence; empty while it is waited for or runs."""


@dataclass(frozen=True, slots=True)
class AskNode(Request):
    """Report how far the host process of a node is."""

    duty: ClassVar[str] = "ray"
    answer: ClassVar[type[Any]] = NodeState
    number: int
    patience_s: float = 0.0
    """Time to wait for its end."""


class RayHost:
    """An actor, the host process of a node."""

    def begin(self) -> None:
        """Do nothing: that this is answered says that the node had room."""

    def serve(self, addresses: Sequence[Address], key: str, number: int) -> None:
        """Answer the leader's requests until it dismisses this process or is gone."""
        connection = connect(addresses, bytes.fromhex(key), Greeting("host", number))
        serve_as_host(connection, dict(os.environ), key)


class RayDriver:
    """See `Duty`."""

    def __init__(self, _environment: Mapping[str, str]) -> None:
        """Begin outside of any cluster."""
        self._ray: Any = None
        self._nodes: list[tuple[RayNode, str]] = []
        """Nodes with Ray's names for them."""
        self._hosts: list[Any] = []
        self._begins: list[Any] = []
        self._ends: list[Any] = []

    def perform(self, request: Any) -> RayNodes | Done | NodeState | Failed:
        """See `Duty`."""
        match request:
            case JoinRay(address):
                return self._join(address)
            case StartOnNodes(addresses, key):
                self._start(addresses, key)
                return Done()
            case AskNode(number, patience_s):
                return self._state(number, patience_s)
        raise TypeError(f"{type(request).__name__} is not a request to a driver of Ray")

    def close(self) -> None:
        """Kill the host processes, whatever they do, and leave the cluster."""
        if self._hosts:
            for host in self._hosts:
                self._ray.kill(host)
            self._ray.shutdown()
            self._hosts.clear()

    def _join(self, address: str) -> RayNodes | Failed:
        try:
            self._ray = import_module("ray")
        except ImportError as error:
            return Failed(f"ray cannot be used ({error}): pip install tuccl[ray]")
        named = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
        host, _, port = named.removeprefix("ray://").rpartition(":")
        try:
            if port.isdigit():
                # Ray itself takes minutes to find out.
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
            self._ray.init(address, logging_level="error", log_to_driver=False)
        except OSError as error:
            why = error.strerror or _one_line(error)
            return Failed(
                f"no Ray cluster at {named}: {why}; name its GCS, as --ray HOST:6379, or start "
                "this within a Ray job"
            )
        except (ValueError, RuntimeError) as error:
            return Failed(f"Ray {version('ray')} cannot join {named}: {_one_line(error)}")
        self._nodes = _nodes_with_gpus(self._ray.nodes())
        return RayNodes(tuple(node for node, _ in self._nodes))

    def _start(self, addresses: tuple[Address, ...], key: str) -> None:
        strategies = import_module("ray.util.scheduling_strategies")
        actor = self._ray.remote(RayHost)
        for number, (node, name) in enumerate(self._nodes):
            there = strategies.NodeAffinitySchedulingStrategy(name, soft=False)
            options = {"num_cpus": 0, "num_gpus": node.gpus, "scheduling_strategy": there}
            host = actor.options(**options).remote()
            self._hosts.append(host)
            self._begins.append(host.begin.remote())
            self._ends.append(host.serve.remote(addresses, key, number))

    def _state(self, number: int, patience_s: float) -> NodeState:
        ray = self._ray
        ended, _ = ray.wait([self._ends[number]], timeout=patience_s)
        if not ended:
            started, _ = ray.wait([self._begins[number]], timeout=0)
            return NodeState(bool(started), "")
        try:
            ray.get(ended[0])
        except ray.exceptions.RayError as error:
            return NodeState(started=True, ended=_last_line(getattr(error, "cause", None) or error))
        return NodeState(started=True, ended="its process left")


def _nodes_with_gpus(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[RayNode, str]]:
    """Return the nodes that live and have GPUs, with Ray's names for them."""
    found = [
        (node["NodeManagerHostname"], node["NodeName"], node["NodeID"], int(gpus))
        for node in nodes
        if node["Alive"] and (gpus := node["Resources"].get("GPU", 0)) >= 1
    ]
    found.sort(key=lambda node: (natural_key(node[0]), natural_key(node[1]), node[2]))
    hosts = [host for host, *_ in found]
    counts = [hosts[:place].count(host) + 1 for place, host in enumerate(hosts)]
    return [
        (RayNode(f"{host}#{count}" if count > 1 else host, gpus), name)
        for (host, _, name, gpus), count in zip(found, counts, strict=True)
    ]


def _last_line(error: BaseException) -> str:
    """Return the first sentence of the last line of an error, where Ray's have the reason."""
    lines = without_escapes(str(error)).strip().splitlines() or [type(error).__name__]
    return printable(lines[-1].strip().partition(". ")[0], _LONGEST_REASON).rstrip(".")


def _one_line(error: BaseException) -> str:
    """Return what an error says, as one line: Ray's have many."""
    return printable(" ".join(str(error).split()), _LONGEST_REASON)
