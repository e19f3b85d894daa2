"""`ShipCheck`: the diagnoses of several hosts, and whether their jobs would load one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from probes.inputs.messages import listed
from tuccl.reports.json_form import member
from tuccl.shipping.doctor.diagnosis import Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedHost:
    """A host of `ship --check`."""

    host: str
    failure: str = ""
    """Why there is no diagnosis; empty if there is one."""
    diagnosis: Diagnosis | None = None
    clock_ahead_s: float = 0.0
    """Seconds that its clock is ahead of that of the host that asks, at least; 0 below 5 s."""

    @property
    def table(self) -> str:
        """Sum of its table; empty if it is not known."""
        return "" if self.diagnosis is None else self.diagnosis.bundle_crc or ""

    @property
    def nccl(self) -> str:
        """Version of its NCCL; empty if it is not known."""
        nccl = None if self.diagnosis is None else self.diagnosis.nccl
        return "" if nccl is None else nccl.version


@dataclass(frozen=True, slots=True)
class ShipCheck:
    """`ship --check`: whether jobs on all hosts would load the same table."""

    directory: Path
    hosts: tuple[CheckedHost, ...]

    @member
    def loads(self) -> bool:
        """Whether all hosts answered, would load the table, and have the same one and one NCCL."""
        answered = all(host.diagnosis is not None and host.diagnosis.loads for host in self.hosts)
        return answered and not self.disagreements

    @member
    def disagreements(self) -> tuple[str, ...]:
        """Differences between the hosts that can hang a job, one sentence each."""
        return (
            *_differences("tables", {host.host: host.table for host in self.hosts}),
            *_differences("NCCLs", {host.host: host.nccl for host in self.hosts}),
        )

    @member
    def warnings(self) -> tuple[str, ...]:
        """Differences that cannot, one sentence each."""
        return tuple(
            f"{host.host}'s clock is {abs(host.clock_ahead_s):.0f} s "
            f"{'ahead of' if host.clock_ahead_s > 0 else 'behind'} this host's: times in histories "
            "and logs mislead; set it, as by chronyc makestep"
            for host in self.hosts
            if host.clock_ahead_s
        )


def _differences(subject: str, values: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence if hosts have different values; those without one do not count."""
    by_value: dict[str, list[str]] = {}
    for host, value in values.items():
        if value:
            by_value.setdefault(value, []).append(host)
    if len(by_value) > 1:
        groups = "; ".join(f"{value} on {listed(hosts)}" for value, hosts in by_value.items())
        yield f"the hosts have different {subject}: {groups}"
