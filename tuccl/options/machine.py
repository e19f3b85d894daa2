"""The machine that `init` tunes: a description, replicated to nodes and validated.

Nothing is written here, so a file that cannot be used leaves no trace.
"""

from __future__ import annotations

from pathlib import Path

from probes.topology.graph import Topology
from probes.topology.replicate import Network, NetworkLayout, replicate, with_shared_gpus
from probes.topology.validation import validate
from tuccl.errors import UnknownNicSpeedError, UsageError
from tuccl.options.machine_argument import read_machine_argument
from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import require_bounds


def load_machine(
    options: MachineOptions, machine: Topology | None = None, *, share_gpus: bool = False
) -> Topology:
    """Return the machine, valid and ready to be tuned.

    Args:
        options: The description of the machine, and of the network that joins its copies.
        machine: The machine itself, where the options name none.
        share_gpus: Whether nodes may have more GPUs than it, on which ranks take turns.

    Raises:
        UsageError: The options are impossible.
        MachineError: The file cannot be used.
    """
    require_bounds(options)
    if options.network_gbps is not None and options.nodes == 1:
        raise UsageError("--network-gbps is the speed of what joins --nodes 2 or more")
    if options.oversubscription != 1 and options.racks is None:
        raise UsageError("--oversubscription is that of racks: give them, as --racks 4,4")
    if machine is None:
        machine = _read(options.topology or "")
    network = Network(
        bandwidth_gb_per_s=None if options.network_gbps is None else options.network_gbps / 8.0,
        latency_us=options.network_latency_us,
        layout=_layout(options.network_layout),
        racks=_racks(options),
        oversubscription=options.oversubscription,
    )
    node_gpus = _node_gpus(options)
    if share_gpus and node_gpus is not None and max(node_gpus) > len(machine.gpus):
        machine = with_shared_gpus(machine, max(node_gpus))
    try:
        topology = replicate(machine, options.nodes, network, node_gpus)
    except UnknownNicSpeedError as error:
        raise UnknownNicSpeedError(f"{error} in Gb/s per NIC, as --network-gbps 200") from error
    validate(topology)
    return topology


def _node_gpus(options: MachineOptions) -> tuple[int, ...] | None:
    if options.node_gpus is None:
        return None
    words = [word.strip() for word in options.node_gpus.split(",")]
    if len(words) != options.nodes or not all(w.isascii() and w.isdigit() for w in words):
        raise UsageError(
            f"--node-gpus {options.node_gpus!a:.40}: give a number of GPUs for each of --nodes "
            f"{options.nodes}, as --nodes 3 --node-gpus 8,8,4"
        )
    return tuple(map(int, words))


def _racks(options: MachineOptions) -> tuple[int, ...]:
    if options.racks is None:
        return ()
    words = [word.strip() for word in options.racks.split(",")]
    if not all(w.isascii() and w.isdigit() and int(w) for w in words) or (
        sum(map(int, words)) != options.nodes
    ):
        raise UsageError(
            f"--racks {options.racks!a:.40}: give the number of nodes in each rack, all --nodes "
            f"{options.nodes} of them, as --nodes 8 --racks 4,4"
        )
    return tuple(map(int, words))


def _read(text: str) -> Topology:
    path = Path(text)
    if path.exists() and not path.is_dir() and not path.is_file():
        raise UsageError(f"{path} is not a regular file; write the topology to a file first")
    return read_machine_argument(text)


def _layout(name: str) -> NetworkLayout:
    try:
        return NetworkLayout(name)
    except ValueError:
        known = " or ".join(layout.value for layout in NetworkLayout)
        raise UsageError(f"--network-layout {name!r} is unknown: use {known}") from None
