"""The command `tuccl probe`: describe this host or cluster, and measure its links."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuccl.api.hosts.probe_options import ProbeOptions
from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, OUTPUT, OUTPUT_FILE, option

if TYPE_CHECKING:
    from tuccl.crew.cluster_probe import ProbeResult
    from tuccl.crew.places import Places

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ProbeOutput:
    """What `tuccl probe` does with what it finds."""

    check: bool = option(
        OUTPUT, "Only show what can be probed here, and what cannot.", default=False
    )
    output: Path | None = option(
        OUTPUT, "Write the topology there, as JSON.", "FILE", default=None, names=OUTPUT_FILE
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl probe --check", "tuccl probe -o machine.json", "tuccl probe --hosts 'node[01-16]'")
def probe(options: ProbeOptions, output: ProbeOutput) -> int:
    """Detect the devices and links of this host or cluster, and measure them.

    Exit code 1: hosts did not answer or differ from the others, or links are slow or unreachable;
    each is named. The topology is written all the same, except that missing hosts need
    --allow-missing. With --check, exit code 1: nothing can be probed here.
    """
    from probes.topology.json_form import topology_to_json
    from tuccl.api.hosts.probing import check_options, cluster_options, with_hosts
    from tuccl.crew.cluster_probe import probe_cluster
    from tuccl.crew.started_rank import ranks_of_launcher
    from tuccl.options.output_file import check_output
    from tuccl.views.terminal import probe_summary
    from tuccl.views.terminal.display import say
    from tuccl.views.terminal.json_output import print_json
    from tuccl.views.terminal.live_view import shown_progress
    from tuccl.workspace.atomic_file import require_writable, write_atomically

    tasks, file = ranks_of_launcher(os.environ), output.output
    check_options(options, tasks)
    if output.check:
        return _check(options, output, tasks)
    if file is not None:
        read = (options.slurm_topology, options.rack_map, options.traffic_log)
        check_output(file, "--output", (*read, options.ibnetdiscover))
    how = cluster_options(options, say)

    def lead(places: Places | None) -> int:
        if file is not None:
            require_writable(file)
        with shown_progress() as progress:
            result = probe_cluster(places, how, progress)
        if file is not None:
            write_atomically(file, topology_to_json(result.topology))
            say(f"topology written to {file}")
        if output.as_json:
            print_json(probe_as_dict(result), SCHEMA_VERSION)
        else:
            probe_summary.print_probe(result)
        return ExitCode.OK if result.is_sound else ExitCode.FINDING

    return with_hosts(options, lead, how.host_timeout_s, output=file)


def probe_as_dict(result: ProbeResult) -> dict[str, Any]:
    """Return the document of `--json`."""
    from probes.topology.json_form import topology_to_json

    return {
        "fingerprint": result.topology.fingerprint(),
        "missing": [asdict(absent) for absent in result.missing],
        "odd_hosts": list(result.odd_hosts),
        "network": {
            "measurements": 0 if result.findings is None else len(result.findings.results),
            **result.faults,
        },
        "gpu_pairs": [
            {"host": result.topology.hosts[host], **asdict(figures)}
            for host, figures in enumerate(result.gpu_figures)
            if figures is not None
        ],
        "seconds": {stage: round(took, 3) for stage, took in result.seconds.items()},
        "topology": json.loads(topology_to_json(result.topology)),
    }


def _check(options: ProbeOptions, output: ProbeOutput, tasks: int) -> int:
    """Show what can be probed here."""
    from probes.host.preflight import CheckStatus, check_host
    from tuccl.api.hosts.probing import host_options
    from tuccl.views.terminal import probe_summary
    from tuccl.views.terminal.json_output import print_json

    if options.names_hosts(os.environ) or tasks > 1:
        raise UsageError(
            "--check examines one host: run it there, without --hosts, Ray and launchers"
        )
    if output.output is not None:
        raise UsageError("--check writes no topology: leave --output out")
    checks = check_host(host_options(options))
    if output.as_json:
        print_json({"checks": [asdict(check) for check in checks]}, SCHEMA_VERSION)
    else:
        probe_summary.print_checks(checks)
    # Without its PCI devices nothing of a host is known; all else has something in its place.
    nothing = any(c.subject == "PCI tree" and c.status is CheckStatus.MISSING for c in checks)
    return ExitCode.FINDING if nothing else ExitCode.OK
