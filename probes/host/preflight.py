"""Check of what can be probed on this host, with reasons and remedies: `check_host`.

Every check tries the real operation (opens the tree, loads NVML, sends a ping) and reports its
failure instead of raising it. All checks take a second or two.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from probes.host.access_control import PASSED_THROUGH, detours, iommu_types
from probes.host.probe import HostProbeOptions, read_inventory
from probes.network.instruments.processes import run
from probes.network.instruments.tools import (
    MEASURING_RDMA,
    Tool,
    install_hint,
    last_words,
    missing_tools,
)
from probes.nvidia.nvml import VARIABLE, read_nvml
from probes.p2p.run import p2p_binary
from probes.pci.endpoints import endpoints
from probes.pci.inventory import NETWORK, NVIDIA, PciInventory
from probes.pci.records import is_tree_silent
from probes.pci.tree import DirectoryTree, FileTree
from probes.topology.figure_text import counted
from tuccl.errors import MachineError, TreeError

_TRIAL_TIMEOUT_S = 1.2
_RDMA_MEMORY_BYTES = 64 << 20
"""Locked memory that perftest and NCCL need for their buffers."""
_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
_SLURM_FILES = ("topology.conf", "topology.yaml")
_TREE_GIVES = "GPUs, NICs and the switches between them"
_GIVE_ALL = "give the container all devices and the host's network"


class CheckStatus(StrEnum):
    """How far a part of the probe can be used."""

    OK = "ok"
    LIMITED = "limited"
    """It works in part, or its figures may be wrong."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of the check of one part of the probe."""

    subject: str
    status: CheckStatus
    what_it_gives: str
    """Its contribution to the topology."""
    why: str
    """The finding."""
    remedy: str = ""
    """The user's remedy; empty when none is needed."""


_OK, _LIMITED, _MISSING = CheckStatus.OK, CheckStatus.LIMITED, CheckStatus.MISSING


def check_host(
    options: HostProbeOptions, environment: Mapping[str, str] = os.environ
) -> tuple[Check, ...]:
    """Check every part of the probe; with a root other than `/`, only the parts that use files."""
    tree = DirectoryTree(options.root)
    try:
        inventory = read_inventory(tree, options)
    except MachineError as error:
        return (Check("PCI tree", _MISSING, _TREE_GIVES, str(error), "give another --root"),)
    pci, rdma, iommu = _pci(inventory), _rdma(inventory), _iommu(tree, inventory)
    if not options.is_live:
        return (pci, rdma, iommu)
    return (
        pci,
        _nvml(environment),
        _p2p(inventory),
        rdma,
        _perftest(inventory),
        _locked_memory(inventory),
        _iperf3(),
        _ping(),
        _mpi(environment),
        _lldp(),
        _slurm(environment),
        iommu,
        _container(environment),
    )


def _pci(inventory: PciInventory) -> Check:
    gpus, ports = len(_gpus(inventory)), len(inventory.ports)
    why = f"{len(inventory.functions)} PCI functions, {gpus} GPUs, {ports} network ports"
    devices = {*_gpus(inventory), *(port.function for port in inventory.ports)}
    if not inventory.functions:
        remedy = "mount /sys of the host, or import a topology file"
        return Check("PCI tree", _MISSING, _TREE_GIVES, why, remedy)
    if not gpus:
        remedy = "nothing, if this host has none; else give them to the container or machine"
        return Check("PCI tree", _LIMITED, _TREE_GIVES, why, remedy)
    if is_tree_silent(function for function in inventory.functions if function.address in devices):
        why += "; it does not show which devices are close, as in virtual machines"
        remedy = "measure GPU pairs, or import the cloud's NCCL topology file"
        return Check("PCI tree", _LIMITED, _TREE_GIVES, why, remedy)
    if inventory.gaps:
        why += f"; {len(inventory.gaps)} things could not be read, first {inventory.gaps[0].where}"
        return Check("PCI tree", _LIMITED, _TREE_GIVES, why, "see the notes of the topology")
    return Check("PCI tree", _OK, _TREE_GIVES, why)


def _gpus(inventory: PciInventory) -> list[str]:
    """Addresses of the functions that a probe takes as GPUs without a driver's help."""
    return [*endpoints(inventory, {}, []).gpus]


def _nvml(environment: Mapping[str, str]) -> Check:
    subject, gives = "NVML", "NVLinks, memory and compute capability of GPUs"
    try:
        facts = read_nvml(environment=environment)
    except MachineError as error:
        return Check(subject, _MISSING, gives, str(error), "switch MIG off, as said")
    if not facts.available:
        why, _, remedy = facts.gaps[0].what.partition(": ")
        return Check(subject, _MISSING, gives, why, remedy)
    why = f"driver {facts.driver or 'of unknown version'}, {len(facts.records)} GPUs"
    if facts.domain:
        why += f" of an NVLink domain that may span hosts ({facts.domain})"
    if not facts.gaps:
        return Check(subject, _OK if facts.records else _LIMITED, gives, why)
    why += f"; {facts.gaps[0].sentence().rstrip('.')}"
    return Check(subject, _LIMITED, gives, why, "see the notes of the topology")


def _p2p(inventory: PciInventory) -> Check:
    subject, gives = "GPU benchmark", "measured bandwidth and latency of every pair of GPUs"
    try:
        binary = p2p_binary()
    except MachineError as error:
        why, _, remedy = str(error).partition(": ")
        return Check(subject, _MISSING, gives, why, remedy)
    if not any(inventory.by_address[gpu].vendor == NVIDIA for gpu in _gpus(inventory)):
        return Check(subject, _MISSING, gives, f"{binary} is there, but no GPU of NVIDIA")
    return Check(subject, _OK, gives, f"{binary}")


def _rdma(inventory: PciInventory) -> Check:
    subject, gives = "RDMA ports", "the network that NCCL uses best"
    ports = [port for port in inventory.ports if port.rdma_device]
    down = [
        f"{port.rdma_device}/{port.rdma_port} ({port.state})" for port in ports if not port.active
    ]
    if not ports:
        why = "none below /sys/class/infiniband: NCCL and the probe use TCP"
        return Check(subject, _MISSING, gives, why, "load the NIC's RDMA driver if it has one")
    why = f"{len(ports) - len(down)} of {len(ports)} active"
    if not down:
        return Check(subject, _OK, gives, why)
    why += f"; down: {', '.join(down[:4])}{' ...' if len(down) > 4 else ''}"
    status = _LIMITED if len(down) < len(ports) else _MISSING
    return Check(subject, status, gives, why, "check cables and switch ports (`ibstat`)")


def _iommu(tree: FileTree, inventory: PciInventory) -> Check:
    """Check what sends traffic between GPUs and NICs up to the CPU: an IOMMU, and ACS."""
    subject, gives = "IOMMU and ACS", "direct PCIe traffic between GPUs and NICs"
    nics = (
        each.address
        for each in inventory.functions
        if each.kind >> 8 == NETWORK and not each.is_virtual
    )
    devices = sorted({*_gpus(inventory), *nics})
    types, found = iommu_types(tree, devices), detours(tree, inventory, devices)
    try:
        active = bool(tree.list("sys/class/iommu")) or bool(types)
    except TreeError as error:
        if not error.missing:
            return Check(subject, _LIMITED, gives, f"sys/class/iommu: {error}")
        active = bool(types)
    translating = active and set(types) != {PASSED_THROUGH}
    redirecting = [detour for detour in found if detour.redirecting]
    whys = [_iommu_why(types) if active else "no IOMMU at work"]
    remedies = []
    if translating:
        remedies.append("let the IOMMU pass through (kernel option iommu=pt)")
    if redirecting:
        first = redirecting[0]
        whys.append(
            f"ACS redirects: traffic of {counted(len(redirecting), 'pair')} of one switch goes up "
            f"to the CPU, first {' and '.join(first.devices)} by {', '.join(first.redirecting)}"
        )
        remedies.append(
            "switch ACS off on these ports unless virtual machines need it (firmware, or `setpci "
            "-s PORT ECAP_ACS+6.w=0` after each boot)"
        )
    elif found:
        ports = sorted({port for detour in found for port in detour.unknown})
        whys.append(
            f"whether ACS redirects is not known: {counted(len(ports), 'port')} of switches, "
            f"first {ports[0]}"
        )
        remedies.append("run it as root, who alone may read these registers")
    elif any(gap.where in devices for gap in inventory.gaps):
        whys.append("whether ACS redirects is not known, since the place of a GPU or NIC is not")
        remedies.append("run it on the host, whose /sys has links")
    status = _LIMITED if remedies else _OK
    return Check(subject, status, gives, "; ".join(whys), "; ".join(remedies))


def _iommu_why(types: Sequence[str]) -> str:
    if not types:
        return "an IOMMU is at work, and does not say whether it translates"
    if set(types) == {PASSED_THROUGH}:
        return "the IOMMU passes addresses through"
    return f"an IOMMU translates addresses (groups of type {', '.join(types)})"


def _container(environment: Mapping[str, str]) -> Check:
    subject, gives = "whole host", "every GPU and NIC of the host"
    found = {}
    if Path("/sys").is_dir() and os.statvfs("/sys").f_flag & os.ST_RDONLY:
        found["/sys is mounted read-only, as in a container"] = _GIVE_ALL
    if any(Path(mark).exists() for mark in _CONTAINER_MARKS):
        found["this is a container"] = _GIVE_ALL
    if VARIABLE in environment:
        found[f"{VARIABLE}={environment[VARIABLE]!a:.60}"] = f"unset {VARIABLE}"
    if not found:
        return Check(subject, _OK, gives, "no container, and no GPUs are hidden")
    remedy = "; ".join(dict.fromkeys(found.values()))
    return Check(subject, _LIMITED, gives, "; ".join(found), remedy)


def _locked_memory(inventory: PciInventory) -> Check:
    subject, gives = "locked memory", "buffers for RDMA"
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = limit == resource.RLIM_INFINITY
    why = "unlimited" if unlimited else f"at most {limit >> 10} KiB"
    if unlimited or limit >= _RDMA_MEMORY_BYTES:
        return Check(subject, _OK, gives, why)
    if not any(port.rdma_device for port in inventory.ports):
        return Check(subject, _OK, gives, f"{why}; no RDMA ports, so none is needed")
    remedy = "`ulimit -l unlimited`; for good `* - memlock unlimited` in /etc/security/limits.conf"
    return Check(subject, _LIMITED, gives, why, remedy)


def _tools(subject: str, gives: str, *tools: Tool) -> Check:
    lacking = missing_tools(tools)
    if lacking:
        why = f"{' and '.join(lacking)} not installed"
        return Check(subject, _MISSING, gives, why, install_hint(lacking[0]))
    return Check(subject, _OK, gives, f"{shutil.which(tools[0])}")


def _perftest(inventory: PciInventory) -> Check:
    check = _tools("perftest", "bandwidth and latency over RDMA", *MEASURING_RDMA)
    if check.status is _MISSING and not any(port.rdma_device for port in inventory.ports):
        return replace(check, why=f"{check.why}; no RDMA ports, so it is not needed")
    return check


def _iperf3() -> Check:
    return _tools("iperf3", "bandwidth over TCP", Tool.IPERF3)


def _ping() -> Check:
    check = _tools("ping", "latency between hosts", Tool.PING)
    remedy = "let it open sockets: `setcap cap_net_raw+ep $(which ping)`, or run as root"
    return _tried(check, ["ping", "-c1", "-W1", "127.0.0.1"], remedy)


def _lldp() -> Check:
    check = _tools("LLDP", "the switch behind each port, and so the racks", Tool.LLDPCTL)
    return _tried(check, ["lldpctl"], "start lldpd, and run as root or in its group")


def _tried(check: Check, command: list[str], remedy: str) -> Check:
    """Run the command of an installed tool and add the result to its check."""
    if check.status is _MISSING:
        return check
    try:
        result = run(command, _TRIAL_TIMEOUT_S)
    except OSError as error:
        return replace(check, status=_LIMITED, why=f"{command[0]} does not start: {error}")
    if result.exit_code == 0 and not result.timed_out:
        return check
    problem = "no answer in time" if result.timed_out else last_words(result.output)
    return replace(check, status=_LIMITED, why=f"`{' '.join(command)}`: {problem}", remedy=remedy)


def _mpi(environment: Mapping[str, str]) -> Check:
    subject, gives = "MPI", "a probe of all hosts, started by mpirun or srun"
    launcher = shutil.which("mpirun") or shutil.which("srun")
    bound = importlib.util.find_spec("mpi4py") is not None
    rank = next((environment[name] for name in _MPI_RANKS if name in environment), None)
    why = (
        f"mpi4py {'is' if bound else 'is not'} installed, "
        f"{launcher or 'neither mpirun nor srun is on PATH'}"
        + (f", this is rank {rank:.8}" if rank is not None else ", not started by MPI")
    )
    if bound and launcher:
        return Check(subject, _OK, gives, why)
    lacking = [] if bound else ["`pip install tuccl[mpi]`"]
    lacking += [] if launcher else ["`apt-get install openmpi-bin` or your cluster's MPI module"]
    return Check(subject, _MISSING, gives, why, " and ".join(lacking))


def _slurm(environment: Mapping[str, str]) -> Check:
    subject, gives = "Slurm", "racks from Slurm's topology"
    folder = Path(environment.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    file = next((path for path in map(folder.joinpath, _SLURM_FILES) if path.is_file()), None)
    scontrol = shutil.which("scontrol")
    if file is not None:
        return Check(subject, _OK, gives, f"{file}")
    if scontrol is not None:
        why = f"{scontrol}, but no topology file in {folder}"
        remedy = "save `scontrol show topology` if it prints one, and give that file"
        return Check(subject, _LIMITED, gives, why, remedy)
    why = f"neither scontrol nor a topology file in {folder}"
    return Check(subject, _MISSING, gives, why, "give a rack map instead if racks matter")
