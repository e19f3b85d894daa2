"""The command `tuccl probe`: describe this host or cluster, and measure its links."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tuccl.api.hosts.probe_command import ProbeCommand
from tuccl.cli.command import command
from tuccl.errors import ExitCode

if TYPE_CHECKING:
    from tuccl.crew.cluster_probe import ClusterProbe
    from tuccl.crew.places import Places

SCHEMA_VERSION = 1


@command("tuccl probe --check", "tuccl probe -o machine.json", "tuccl probe --hosts 'node[01-16]'")
def probe(options: ProbeCommand) -> int:
    """Detect the devices and links of this host or cluster, and measure them.

    Exit code 1: hosts did not answer or differ from the others, or links are slow or unreachable;
    each is named. The topology is written all the same, except that missing hosts need
    --allow-missing. With --check, exit code 1: nothing can be probed here.
    """
    from probes.topology.json_form import topology_to_json
    from tuccl.api.hosts.probing import (
        Reach,
        check_options,
        cluster_options,
        is_sound,
        with_hosts,
    )
    from tuccl.crew.cluster_probe import probe_cluster
    from tuccl.crew.mpi import mpi_tasks
    from tuccl.views.terminal import probe_summary
    from tuccl.views.terminal.display import say
    from tuccl.views.terminal.json_output import print_json
    from tuccl.views.terminal.progress import shown_progress
    from tuccl.workspace.atomic_file import require_writable, write_atomically

    check_options(options, mpi_tasks(os.environ))
    if options.check:
        return _check(options)
    how = cluster_options(options, say)

    def lead(places: Places | None) -> int:
        if options.output is not None:
            require_writable(options.output)
        with shown_progress() as progress:
            result = probe_cluster(places, how, progress)
        if options.output is not None:
            write_atomically(options.output, topology_to_json(result.topology))
            say(f"topology written to {options.output}")
        if options.as_json:
            print_json(probe_as_dict(result), SCHEMA_VERSION)
        else:
            probe_summary.print_probe(result)
        return ExitCode.OK if is_sound(result) else ExitCode.FINDING

    reach = Reach(options.hosts, options.launcher, options.remote_python)
    return with_hosts(reach, lead, options.host_timeout_s)


def probe_as_dict(result: ClusterProbe) -> dict[str, Any]:
    """Return the document of `--json`."""
    from probes.topology.json_form import topology_to_json
    from tuccl.api.hosts.probing import network_faults

    return {
        "fingerprint": result.topology.fingerprint(),
        "missing": [asdict(absent) for absent in result.missing],
        "odd_hosts": list(result.odd_hosts),
        "network": {
            "measurements": 0 if result.findings is None else len(result.findings.results),
            **network_faults(result),
        },
        "gpu_pairs": [
            {"host": result.topology.hosts[host], **asdict(figures)}
            for host, figures in enumerate(result.gpu_figures)
            if figures is not None
        ],
        "seconds": {stage: round(took, 3) for stage, took in result.seconds.items()},
        "topology": json.loads(topology_to_json(result.topology)),
    }


def _check(options: ProbeCommand) -> int:
    """Show what can be probed here."""
    from probes.host.preflight import CheckStatus, check_host
    from tuccl.api.hosts.probing import host_options
    from tuccl.views.terminal import probe_summary
    from tuccl.views.terminal.json_output import print_json

    checks = check_host(host_options(options))
    if options.as_json:
        print_json({"checks": [asdict(check) for check in checks]}, SCHEMA_VERSION)
    else:
        probe_summary.print_checks(checks)
    # Without its PCI devices nothing of a host is known; all else has something in its place.
    nothing = any(c.subject == "PCI tree" and c.status is CheckStatus.MISSING for c in checks)
    return ExitCode.FINDING if nothing else ExitCode.OK
