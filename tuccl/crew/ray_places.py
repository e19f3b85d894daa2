"""The nodes of a Ray cluster as places: an actor on each hosts the workers of all its GPUs.

A process of its own joins the cluster (`tuccl.crew.ray_driver`), and Ray carries the leader's
address and the run's key to the actors, which connect to it: nothing is written, and after that no
message takes Ray's way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from tuccl.crew.asking import Lost, Member, ask
from tuccl.crew.connection import Connection
from tuccl.crew.messages import Request
from tuccl.crew.places import Places, dismiss, places_of_hosts
from tuccl.crew.ray_driver import AskNode, JoinRay, NodeState, RayNode, RayNodes, StartOnNodes
from tuccl.crew.worker_process import WorkerProcess, end_processes, worker_command
from tuccl.errors import HostError, MeasurementError, OtherReleaseError
from tuccl.quantities import count_of

_JOIN_S = 30.0
_ANSWER_S = 10.0
_EXIT_S = 2.0
"""Time between the end of an actor's connection and what Ray knows of its end."""
_GOODBYE_S = 5.0


class Driver:
    """The process that joins the cluster; to be closed."""

    def __init__(self) -> None:
        """Start it."""
        process = self._process = WorkerProcess(worker_command("host"), None, talks=True)
        self._closed = False
        connection = Connection.behind_launcher(*process.pipes)
        self._member = Member("the driver of Ray", connection, lambda: process.ended(_EXIT_S))

    def ask(self, request: Request, timeout_s: float) -> Any:
        """Return its answer, or `Lost`."""
        return ask({0: self._member}, {0: request}, timeout_s)[0]

    def close(self) -> None:
        """End it, and with it the actors."""
        if not self._closed:
            self._closed = True
            dismiss({0: self._member}, 0, _GOODBYE_S)
            self._member.lose("it was dismissed")
            end_processes([self._process], _EXIT_S)


class RayPlaces(Places):
    """The GPUs of a cluster."""

    def __init__(self, driver: Driver, nodes: Sequence[RayNode]) -> None:
        """Take a driver that has joined, and the nodes that it found."""
        places, served_by = places_of_hosts([(node.name, node.gpus) for node in nodes])
        super().__init__(places, served_by=served_by)
        self._driver = driver
        self._nodes = nodes

    def start_hosts(self, timeout_s: float) -> None:
        """Start a host process on each node, and wait until all have connected.

        Raises:
            MeasurementError: One did not start or connect.
        """
        listener = self.listener
        self._driver.ask(StartOnNodes(listener.addresses, listener.key.hex()), _ANSWER_S)
        deadline = time.monotonic() + timeout_s
        while missing := set(range(len(self._nodes))) - self._hosts.keys():
            try:
                found = listener.accept(0.5)
            except OtherReleaseError as error:
                raise MeasurementError(f"{self._name(error.number)}: {error}") from error
            if found is not None:
                connection, greeting = found
                self._take(greeting.number, connection)
                continue
            for number in sorted(missing):
                self._require_hope(number, timeout_s, deadline)

    def close(self) -> None:
        """See `Places`."""
        super().close()
        for host in self._hosts.values():
            host.lose("it was dismissed")
        self._driver.close()

    def _take(self, number: int, connection: Connection) -> None:
        def how_ended() -> str:
            state = self._driver.ask(AskNode(number, _EXIT_S), _EXIT_S + _ANSWER_S)
            if isinstance(state, NodeState):
                return state.ended
            return f"{state.name} is lost: {state.reason}"

        self._hosts[number] = Member(self._name(number), connection, how_ended)

    def _require_hope(self, number: int, timeout_s: float, deadline: float) -> None:
        state = self._driver.ask(AskNode(number), _ANSWER_S)
        if not isinstance(state, NodeState):
            raise _driver_lost(state)
        if state.ended:
            lacks = "; install this TuCCL there" if "No module named" in state.ended else ""
            raise MeasurementError(f"{self._name(number)} cannot take part: {state.ended}{lacks}")
        if time.monotonic() > deadline:
            gpus, where = self._nodes[number].gpus, self.listener.addresses[0][0]
            raise MeasurementError(
                f"{self._name(number)} did not report within {timeout_s:g} s over TCP to {where}"
                if state.started
                else f"{self._name(number)}: no actor with {count_of(gpus, 'GPU')} started within "
                f"{timeout_s:g} s: end what has them, as ray status shows"
            )

    def _name(self, number: int) -> str:
        return f"Ray node {self._nodes[number].name}"


def _driver_lost(driver: Lost) -> MeasurementError:
    return MeasurementError(
        f"{driver.name} is lost ({driver.reason}): start the same command again"
    )


def ray_places(address: str, timeout_s: float) -> RayPlaces:
    """Return the places of a cluster, on each node of which a host process runs.

    Args:
        address: Its address, or `auto`.
        timeout_s: Time for nodes to have room, and to connect.

    Raises:
        HostError: There is no such cluster, ray is missing or of another version, or no node has
            GPUs.
        MeasurementError: The driver is lost; see `RayPlaces.start_hosts`.
    """
    driver = Driver()
    try:
        found = driver.ask(JoinRay(address), _JOIN_S)
        if isinstance(found, Lost) and found.is_late:
            raise HostError(
                f"the program at {address} is not a cluster of Ray {version('ray')}: name its GCS, "
                "as --ray HOST:6379, and install the Ray that it has"
            )
        if isinstance(found, Lost):
            raise _driver_lost(found)
        if not isinstance(found, RayNodes):
            raise HostError(found.reason)
        if not found.nodes:
            raise HostError(
                f"no node of the Ray cluster at {address} has a GPU: add nodes that have, as "
                "ray start --num-gpus 8 does; for this host alone: env -u RAY_ADDRESS, without "
                "--ray"
            )
        places = RayPlaces(driver, found.nodes)
    except BaseException:
        driver.close()
        raise
    try:
        places.start_hosts(timeout_s)
    except BaseException:
        places.close()
        raise
    return places
