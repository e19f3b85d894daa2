"""Duties: what a process of the crew can be asked, by name; a new duty is added here alone.

A process imports a duty when it is asked for it and not before.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

from tuccl.crew.messages import Envelope, Failed, Request
from tuccl.errors import MessageError

_DUTIES = {
    "engine": "tuccl.measuring.workers.engine_duty:EngineDuty",
    "hosting": "tuccl.crew.hosting:Hosting",
    "nccl": "tuccl.api.hosts.settled_nccl:NcclSearch",
    "piece": "tuccl.crew.pieces:PieceOfWork",
    "probe": "tuccl.crew.probe_station:Station",
    "ray": "tuccl.crew.ray_driver:RayDriver",
    "table": "tuccl.api.hosts.shipped_hosts:TableCheck",
}
"""`module:class` by name; the module has the duty's requests."""


class Duty(Protocol):
    """Performs the requests of a duty, one after another.

    Its class is called with the environment of the workers that this process starts.
    """

    def perform(self, request: Any) -> Any:
        """Perform a request and return its answer, or `Failed`."""

    def close(self) -> None:
        """End what still runs."""


@dataclass
class Duties:
    """The duties of this process; to be closed."""

    environment: MutableMapping[str, str]
    """Environment of the workers that this process starts."""
    begun: dict[str, Duty] = field(default_factory=dict)
    """Duties by name; at first those that need more than the environment."""

    def request_from(self, envelope: Envelope) -> Request:
        """Return a request.

        Raises:
            MessageError: The message is damaged, or is no request of a duty.
        """
        kind = getattr(_module(envelope.duty), envelope.kind, None)
        if not isinstance(kind, type) or not issubclass(kind, Request):
            raise MessageError(f"no process can do {envelope.kind!a:.40}")
        request: Request = envelope.content(kind)
        return request

    def perform(self, request: Request) -> Any:
        """Perform a request; a defect of this program becomes `Failed`."""
        try:
            if request.duty not in self.begun:
                name = _DUTIES[request.duty].partition(":")[2]
                self.begun[request.duty] = getattr(_module(request.duty), name)(self.environment)
            return self.begun[request.duty].perform(request)
        except Exception as error:  # noqa: BLE001 - without an answer the leader would wait
            traceback.print_exc(file=sys.stderr)
            return Failed(f"{type(error).__name__}: {error}", broken=True)

    def close(self) -> None:
        """Close all of them."""
        while self.begun:
            self.begun.popitem()[1].close()


def _module(duty: str) -> ModuleType:
    if duty not in _DUTIES:
        raise MessageError(f"no process has the duty {duty!a:.40}")
    return import_module(_DUTIES[duty].partition(":")[0])
