"""Checks of a host's structure: GPUs, links and NICs against the machine of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from probes.comparison.changes import describe_changes, with_figures_of
from probes.inputs.messages import listed
from probes.topology.domains import hosts_of_node
from probes.topology.figure_text import counted
from probes.topology.graph import Topology
from probes.topology.hosts import hosts_alike, split_hosts
from tuccl.errors import MachineError
from tuccl.reports.host_record import HostRecord
from tuccl.shipping.doctor.findings import Finding, note, ok, warning

CHECK = "machine"
_MOST_ALIKE = 2
"""Most changes with the same remedy that have a line each."""
_RETUNE = "or, if it is to stay so: tuccl retune, and tuccl ship"
_REMEDIES = (
    ("", " is new", "see whether it belongs here"),
    ("NIC ", " runs at ", "see the cable, the switch port and `ethtool`"),
    ("NIC ", " is missing", "see `ip link` and `dmesg`"),
    ("GPU ", " is missing", "see `nvidia-smi`, `dmesg | grep -i xid` and CUDA_VISIBLE_DEVICES"),
    ("NVLink ", "", "see `nvidia-smi nvlink -s` and `dmesg | grep -i xid`"),
    ("NVSwitch ", "", "see whether nvidia-fabricmanager runs"),
    ("PCIe link ", "", "see LnkSta of `lspci -vv`, and the card's seat"),
)
"""Beginning of a sentence, a part of it, and the remedy; the first that fits counts."""


def check_structure(
    record: HostRecord | None, machine: Topology | None, now: Topology
) -> Iterator[Finding]:
    """Compare this host with the host that was measured, or else with the table's machine.

    Args:
        record: The host that was measured; None: unknown.
        machine: Machine of the table; None: unknown.
        now: This host, probed without measurements.
    """
    hosts = _expected(record, machine, now)
    if not hosts:
        unknown = "the table does not name its machine, so links, NICs and GPUs are not compared"
        yield note(CHECK, unknown, "tuccl ship there again, by this release")
        return
    if any(host.fingerprint() == now.fingerprint() for host in hosts):
        devices = f"{counted(len(now.gpus), 'GPU')}, {counted(len(now.nics), 'NIC')}"
        yield ok(CHECK, f"{devices} and their links are the same")
        return
    if not now.gpus and (gpus := min(len(host.gpus) for host in hosts)):
        # Links and switches go with the GPUs, and each would have a line.
        yield warning(
            CHECK,
            f"no GPU is seen here, and the table is for a host of {gpus}",
            _remedy("GPU is missing"),
        )
        return
    changed: dict[str, list[str]] = {}
    for sentence in min((describe_changes(host, now) for host in hosts), key=len):
        changed.setdefault(_remedy(sentence), []).append(sentence.removesuffix("."))
    for remedy, sentences in changed.items():
        alike = len(sentences) > _MOST_ALIKE
        for text in [listed(sentences)] if alike else sentences:
            yield warning(CHECK, text, remedy)


def _expected(
    record: HostRecord | None, machine: Topology | None, now: Topology
) -> Sequence[Topology]:
    """Return the hosts that this one may be, those of its own name alone if there are any."""
    alike = machine is None or len(hosts_alike(machine)) == 1
    if record is not None and alike and (known := _structure(record)) is not None:
        return [known]
    if machine is None:
        return []
    nodes = split_hosts(machine)
    named = [
        host
        for node, host in nodes.items()
        if node < len(machine.hosts) and machine.hosts[node] in now.hosts and len(nodes) > 1
    ]
    hosts = chain.from_iterable(map(hosts_of_node, named or _kinds(machine)))
    return [with_figures_of(_as_first(host), now) for host in hosts]


def _structure(record: HostRecord) -> Topology | None:
    try:
        return record.topology()
    except MachineError:
        return None


def _kinds(machine: Topology) -> list[Topology]:
    return [group.example for group in hosts_alike(machine)]


def _as_first(host: Topology) -> Topology:
    """Return a host of a cluster with the names of a machine of one host."""
    prefixes = {f"n{device.node}/" for device in host.devices}

    def renamed(name: str) -> str:
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        return f"n0/{name.removeprefix(prefix)}" if prefix else name

    return replace(
        host,
        devices=tuple(replace(d, name=renamed(d.name), node=0) for d in host.devices),
        links=tuple(replace(e, src=renamed(e.src), dst=renamed(e.dst)) for e in host.links),
        limits=(),
    )


def _remedy(sentence: str) -> str:
    found = (
        remedy
        for start, part, remedy in _REMEDIES
        if sentence.startswith(start) and part in sentence
    )
    return f"{next(found, 'see `tuccl probe`')}; {_RETUNE}"
