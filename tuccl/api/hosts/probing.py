"""A probe's processes, hosts, options and faults."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path

from probes.host.probe import HostProbeOptions
from probes.inputs.xml_tree import MAX_BYTES
from probes.network.campaign.idle_pairs import parse_traffic_log
from probes.network.racks.address_prefixes import parse_rack_prefixes
from probes.network.racks.ibnetdiscover import AdapterPort, parse_ibnetdiscover
from probes.network.racks.rack_map import (
    MAX_HOSTS,
    expand_host_list,
    numbered_lines,
    parse_rack_map,
    parse_slurm_topology,
)
from probes.topology.graph import Topology
from tuccl.api.hosts.probe_options import ProbeOptions, Reach
from tuccl.crew.cluster_probe import ClusterOptions, probe_cluster
from tuccl.crew.launched import DEFAULT_LAUNCHER, LaunchedPlaces
from tuccl.crew.places import Places
from tuccl.crew.ranks import START_S, run_ranks
from tuccl.crew.ray_places import ray_places
from tuccl.crew.started_rank import nodes_left_out
from tuccl.errors import MachineError, UsageError
from tuccl.measuring.engines.nccl_environment import count_gpus_or_1
from tuccl.quantities import parse_seconds
from tuccl.search.trials.events import Progress
from tuccl.workspace.atomic_file import absolute

_HOSTS_LINE = re.compile(
    r"(\S+)(?:\s+slots\s*=\s*([1-9][0-9]{0,2}))?(?:\s+max[-_]slots\s*=\s*\d+)?"
)


def with_hosts(
    reach: Reach,
    lead: Callable[[Places | None], int],
    timeout_s: float = START_S,
    environment: Mapping[str, str] | None = None,
    *,
    meeting: Path | None = None,
    output: Path | None = None,
) -> int:
    """Run `lead` in one process with the places of all hosts; return the exit code.

    A host that does not answer is a lost place, but all ranks of a meeting must. The other
    processes of a job answer the requests, and exit with the same code.

    Args:
        reach: The hosts.
        lead: Called with the places of each host, or of each rank of a job; with None if there is
            this host alone.
        timeout_s: Time for a job to start.
        environment: As for `run_ranks`.
        meeting: Likewise.
        output: Likewise.
    """
    if address := reach.ray_address(os.environ):
        with closing(ray_places(address, timeout_s)) as places:
            return lead(places)
    if not reach.hosts:
        if left_out := nodes_left_out(os.environ):
            sys.stderr.write(
                f"note: Slurm gave this job {left_out + 1} nodes, and this command is for this "
                "host alone: srun starts it on all\n"
            )
        return run_ranks(
            lead,
            timeout_s,
            environment,
            all_report=meeting is not None,
            meeting=meeting,
            output=output,
            count_gpus=count_gpus_or_1 if meeting is not None else lambda: 1,
        )
    slots = host_slots(reach.hosts)
    launcher = reach.launcher or DEFAULT_LAUNCHER
    found = LaunchedPlaces(list(slots), launcher, reach.remote_python, list(slots.values()))
    with closing(found) as launched:
        return lead(launched)


def host_slots(hosts: str) -> dict[str, int]:
    """Return the number of slots of each host of a list, or of a file of lists.

    Raises:
        UsageError: The file cannot be read.
        MachineError: A list or a line is malformed, or names a host again with other slots.
    """
    path = Path(hosts)
    if "/" not in hosts and not path.is_file():
        return dict.fromkeys(expand_host_list(hosts), 1)
    found: dict[str, int] = {}
    for number, line in numbered_lines(_text(path)):
        words = _HOSTS_LINE.fullmatch(line)
        if words is None:
            raise MachineError(
                f"{hosts} line {number}: {line!a:.60}, expected hosts and maybe slots=N"
            )
        slots = int(words[2] or 1)
        for name in expand_host_list(words[1], MAX_HOSTS - len(found)):
            if found.setdefault(name, slots) != slots:
                raise MachineError(
                    f"{hosts} line {number}: host {name} has {found[name]} slots above, and {slots}"
                )
    if not found:
        raise MachineError(f"{hosts} names no host: write a line for each, as `node1 slots=8`")
    return found


def probe_for_init(
    places: Places | None,
    shown: Callable[[], AbstractContextManager[Progress]],
    tell: Callable[[str], None],
) -> Topology:
    """Return the machine for `tuccl init` and `tuccl retune`, with all that `tuccl probe` measures.

    Its notes, odd hosts among them, may explain why it cannot be tuned.

    Args:
        places: Places of the hosts to probe; this host alone if left out.
        shown: Opens the display of progress.
        tell: Called with each note, a line.

    Raises:
        HostsMissingError: Hosts did not answer.
        MachineError: The hosts describe an impossible machine.
    """
    with shown() as progress:
        result = probe_cluster(places, cluster_options(ProbeOptions(), tell), progress)
    for note in result.topology.notes:
        tell(f"note: {note}")
    took = sum(result.seconds.values())
    tell(f"probed in {took:.1f} s: topology {result.topology.fingerprint()}")
    return result.topology


def check_options(options: ProbeOptions, tasks: int) -> None:
    """Refuse contradictory options before anything is started.

    Raises:
        UsageError: Options are impossible or contradict each other.
    """
    options.require_possible(tasks)
    if options.root is not None and (options.names_hosts(os.environ) or tasks > 1):
        raise UsageError(
            "--root looks at one directory of this host: leave --hosts, Ray and launchers away"
        )
    if options.root is not None and not options.root.is_dir():
        raise UsageError(
            f"--root {options.root} is not a directory; give one that holds sys and proc"
        )
    parse_seconds(options.host_timeout, "--host-timeout")
    if not 1 <= options.seconds_per_pair <= 60:
        raise UsageError(f"--seconds-per-pair {options.seconds_per_pair}: use 1 to 60")


def host_options(options: ProbeOptions) -> HostProbeOptions:
    """Return the options of a probe of this host."""
    if options.root is not None:
        return HostProbeOptions(absolute(options.root), options.interfaces)
    return HostProbeOptions(interfaces=options.interfaces, measure_p2p=options.p2p)


def cluster_options(options: ProbeOptions, tell: Callable[[str], None]) -> ClusterOptions:
    """Return the options of a probe, with the contents of the files that they name.

    Args:
        options: The options of the command.
        tell: Called with a note on a file of the system that is not used.

    Raises:
        UsageError: A file cannot be read.
        MachineError: A file or a prefix is malformed.
    """
    racks: dict[str, str] = {}
    utilisation = None
    if options.slurm_topology is not None:
        source = options.slurm_topology
        racks.update(parse_slurm_topology(_text(source), str(source)))
    elif not options.rack_prefix:
        racks.update(_slurm_racks(os.environ, tell))
    if options.rack_map is not None:
        racks.update(parse_rack_map(_text(options.rack_map), str(options.rack_map)))
    fabric: tuple[AdapterPort, ...] = ()
    if options.ibnetdiscover is not None:
        fabric = parse_ibnetdiscover(_text(options.ibnetdiscover), str(options.ibnetdiscover))
    if options.traffic_log is not None:
        utilisation = parse_traffic_log(_text(options.traffic_log), str(options.traffic_log))
    return ClusterOptions(
        host=host_options(options),
        network=options.network,
        seconds_per_pair=options.seconds_per_pair,
        host_timeout_s=parse_seconds(options.host_timeout, "--host-timeout"),
        allow_missing=options.allow_missing,
        racks=racks,
        fabric=fabric,
        prefixes=parse_rack_prefixes(options.rack_prefix),
        utilisation=utilisation,
        names_are_given=bool(options.hosts),
    )


def _slurm_racks(environment: Mapping[str, str], tell: Callable[[str], None]) -> dict[str, str]:
    """Return racks from the topology file beside Slurm's configuration, if it can be read."""
    folder = Path(environment.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    file = folder / "topology.conf"
    try:
        return parse_slurm_topology(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError):
        return {}
    except MachineError as error:
        tell(f"note: not used: {error}")
        return {}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:  # Works for a pipe, too.
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"{path}: more than {MAX_BYTES:,} bytes; give a smaller file")
        return content.decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a readable file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
