"""Checks of the host: shared memory, cores, and whether it is the machine of the table."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

from lookup_tables.bundles.bundle import Bundle
from lookup_tables.program_header import header_of
from probes.host.probe import HostProbeOptions, probe_host
from probes.nvidia.nvml import NvmlFacts, NvmlGpu, read_nvml
from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls
from tuccl.crew.cores import cores_for, lanes_on
from tuccl.errors import MachineError
from tuccl.quantities import count_of
from tuccl.shipping.doctor.findings import Finding, error, note, ok, warning
from tuccl.shipping.doctor.seen_devices import (
    difference,
    lacking_nvlinks,
    pci_classes,
    see_devices,
    strange_gpu,
    sysfs_of,
)

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, nothing is written there
_LEAST_FREE_BYTES = 64 << 20
"""Docker's default size; NCCL's transports over shared memory and data loaders need more."""
_MIB = 1 << 20
_MOST_PAIRS = 8
_TUNE_HERE = "tuccl init on this machine, and tuccl ship"
_MEND_NVLINKS = (
    "see `nvidia-smi nvlink -s` and `dmesg | grep -i xid`; NCCL and the table use the rest"
)


def check_shared_memory(path: Path = _SHARED_MEMORY) -> Iterator[Finding]:
    """Check the size and mode of /dev/shm, which NCCL and the executor use inside a host."""
    check = str(_SHARED_MEMORY)
    try:
        status, room = path.stat(), os.statvfs(path)
    except OSError as failure:
        yield warning(check, f"{path}: {failure.strerror}", f"mount -t tmpfs tmpfs {path}")
        return
    total, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    if free <= _LEAST_FREE_BYTES:
        yield warning(
            check,
            f"{free // _MIB} MiB of {total // _MIB} MiB are free in {path}: communicators may not "
            "start",
            f"docker run --shm-size 1g, or mount -o remount,size=1g {path}",
        )
    elif not status.st_mode & stat.S_ISVTX or not status.st_mode & stat.S_IWOTH:
        mode = stat.S_IMODE(status.st_mode)
        yield warning(
            check,
            f"{path} has mode {mode:o}: users can remove one another's files, or not make any",
            f"chmod 1777 {path}",
        )
    else:
        yield ok(check, f"{free // _MIB} MiB free, mode 1777")


def check_cores(
    bundle: Bundle, cores: frozenset[int], of_host: int | None = None
) -> Iterator[Finding]:
    """Check that a node's ranks can drive the lanes of the table's schedules.

    Args:
        bundle: The table.
        cores: Cores that this process may use.
        of_host: Number of the host's cores: a process that may use fewer is bound, as a job's ranks
            may be to others; None: all are given.
    """
    lanes_of = {
        schedule.content_hash: header_of(schedule.program).lanes
        for schedule in bundle.schedules
        if schedule.program
    }
    laned = [
        (lanes, entry.key.shape.ranks_per_node or entry.key.shape.ranks)
        for entry in bundle.all_entries
        if entry.schedule is not None and (lanes := lanes_of.get(entry.schedule.schedule, 1)) > 1
    ]
    lacking = [(n, ranks) for n, ranks in laned if n > lanes_on([("", cores)] * ranks)]
    if lacking and len(cores) < (of_host or 0):
        each = max(cores_for(lanes) for lanes, _ in lacking)
        yield note(
            "cores",
            f"{len(cores)} of {of_host} cores are seen here, and ranks of a job may have others: "
            f"with fewer than {each} for each, calls of {max(lacking)[0]} lanes are NCCL's",
        )
    elif lacking:
        needed = max(cores_for(lanes) * ranks for lanes, ranks in lacking)
        entries = count_of(len(lacking), "entry", "entries")
        yield warning(
            "cores",
            f"{entries} by schedules of up to {max(lacking)[0]} lanes: a job on the {len(cores)} "
            "cores that are seen here leaves their calls to NCCL",
            f"give a job {needed} cores a node, as by srun --cpus-per-task, or tune with these",
        )
    elif laned:
        yield ok("cores", f"{len(cores)} cores drive the {max(laned)[0]} lanes of its schedules")


def check_machine(bundle: Bundle, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check that this host is one of the table's machine, by GPU models, number and fingerprint."""
    sysfs = sysfs_of(environment)
    gpus, nics = see_devices(sysfs)
    listed = [gpu for gpu in gpus if gpu.model in bundle.gpu_models]
    models = ", ".join(bundle.gpu_models)
    if not bundle.gpu_models:
        yield note("machine", "the table does not name GPU models, so nothing is compared")
    elif strange := strange_gpu(gpus, bundle.gpu_models):
        yield error(
            "machine",
            f"the table is for another machine: GPU {strange} here, none of {models}",
            _TUNE_HERE,
        )
    elif not listed:
        yield note("machine", f"no GPU is seen here, and the table is for {models}: not known")
    elif differs := difference(bundle.facts.hosts, gpus, nics, across_hosts=_nodes(bundle) > 1):
        yield error("machine", f"the table is for another machine: {differs}", _TUNE_HERE)
    else:
        yield from _same_models(bundle, len(listed), sysfs)


def check_nvlinks(
    bundle: Bundle,
    environment: Mapping[str, str],
    read: Callable[..., NvmlFacts] = read_nvml,
) -> Iterator[Finding]:
    """Check by NVML, where it is there, that GPUs have the NVLinks of the table's hosts.

    The plugin has no time for that, since NVML takes milliseconds for each GPU.
    """
    sysfs = sysfs_of(environment)
    try:
        facts = read(classes=pci_classes(sysfs))
    except MachineError:
        return
    nvlinks = {gpu.address: _nvlinks(gpu) for gpu in facts.gpus}
    lacking = lacking_nvlinks(bundle.facts.hosts, see_devices(sysfs)[0], nvlinks)
    if lacking:
        yield warning("NVLink", f"not as on the table's hosts: {lacking}", _MEND_NVLINKS)
    elif lacking is not None:
        yield ok("NVLink", "the GPUs that NVML shows have the NVLinks of the table's hosts")


def _nvlinks(gpu: NvmlGpu) -> int:
    return sum(link.count for link in gpu.record.links if link.tag == "nvlink")


def _nodes(bundle: Bundle) -> int:
    return max((entry.key.shape.nodes for entry in bundle.all_entries), default=1)


def _same_models(bundle: Bundle, gpus: int, sysfs: Path) -> Iterator[Finding]:
    most = max((entry.key.shape.ranks_per_node for entry in bundle.all_entries), default=0)
    if gpus < most:
        yield warning(
            "machine",
            f"the table is for {most} GPUs a node, {gpus} are here: jobs of fewer GPUs have no "
            "entries",
            _TUNE_HERE,
        )
    else:
        yield ok("machine", f"{gpus} GPUs here of a model of the table")
    if _nodes(bundle) > 1 or str(sysfs) != "/sys":
        return
    own = _fingerprint()
    if own == bundle.fingerprint:
        yield ok("machine", f"its fingerprint is the table's, {own}")
    elif own:
        yield note(
            "machine",
            "its fingerprint without measurements is not the table's, which may have some",
            "tuccl retune, which measures and compares",
        )


def _fingerprint() -> str:
    """Return the fingerprint of this host without measurements; empty where it has none."""
    try:
        return probe_host(HostProbeOptions(measure_p2p=False)).topology.fingerprint()
    except MachineError:
        return ""


def check_direct_access(nvml: NvmlCalls | None = None) -> Iterator[Finding]:
    """Check by NVML, where it is there, that GPUs reach each other's memory."""
    try:
        calls = nvml or NvmlCalls()
        calls.start()
    except NvmlCallError:
        yield note("P2P", "no NVML here, so it is not known whether GPUs reach each other directly")
        return
    try:
        yield _access(calls)
    except NvmlCallError as failure:
        yield note("P2P", f"not known: NVML says {failure}")
    finally:
        calls.stop()


def _access(calls: NvmlCalls) -> Finding:
    pairs = list(combinations(range(calls.gpu_count()), 2))
    without = [f"{a}-{b}" for a, b in pairs if not calls.may_access(a, b)]
    if not without:
        return ok("P2P", f"{len(pairs)} pairs of GPUs, all with direct access")
    named = ", ".join(without[:_MOST_PAIRS]) + (", ..." if len(without) > _MOST_PAIRS else "")
    return warning(
        "P2P",
        f"GPUs {named} have no direct access: traffic goes through the host",
        "see nvidia-smi topo -p2p w, and the IOMMU of this host",
    )
