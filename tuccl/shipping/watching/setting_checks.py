"""Checks of a host's settings: GPUs by NVML, driver, TCP's congestion control, NCCL's variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from probes.nvidia.gpu_settings import GpuCondition, GpuSettings, GpuStates
from tuccl.measuring.engines.nccl_environment import set_otherwise, site_variables
from tuccl.reports.host_record import HostRecord
from tuccl.shipping.doctor.findings import Finding, note, ok, warning

_UNKNOWN = "the manifest does not say"
_AGAIN = "tuccl ship there again, on a host that was measured"
_ACCEPT = "or, if it is to stay so: tuccl watch --accept"
_Change = tuple[str, str]
"""Change of a GPU and its remedy, in which GPUS stands for the GPUs that it concerns."""
GPUS = "GPUS"


def check_gpus(record: HostRecord | None, now: GpuStates) -> Iterator[Finding]:
    """Compare the settings of all GPUs with those recorded, and look at their condition."""
    check = "GPUs"
    if record is not None and record.gpus and now.problem:
        yield warning(check, f"NVML does not answer: {now.problem}", "see `nvidia-smi` and `dmesg`")
        return
    yield from _of_all(check, [_condition_changes(each) for each in now.conditions])
    for gpu, each in enumerate(now.conditions):
        if each.slowdowns and each.processes:
            reasons = ", ".join(each.slowdowns)
            yield note(check, f"GPU {gpu}: its processes hold the clocks down now: {reasons}")
    if record is None:
        yield note(check, f"{_UNKNOWN} clocks, power limits and ECC of the measured host", _AGAIN)
    elif len(record.gpus) == len(now.settings):
        pairs = zip(record.gpus, now.settings, strict=True)
        changes = [list(_setting_changes(was, each)) for was, each in pairs]
        yield from _of_all(check, changes)
        if not any(changes):
            yield ok(check, "clocks, power limits and ECC are as they were")


def _of_all(check: str, changes: Sequence[Sequence[_Change]]) -> Iterator[Finding]:
    """Yield the changes of all GPUs, equal ones together."""
    gpus: dict[_Change, list[int]] = {}
    for gpu, found in enumerate(changes):
        for change in found:
            gpus.setdefault(change, []).append(gpu)
    for (text, remedy), numbers in gpus.items():
        listed = ",".join(map(str, numbers))
        yield warning(check, f"GPU {listed}: {text}", remedy.replace(GPUS, listed))


def _condition_changes(now: GpuCondition) -> list[_Change]:
    found = []
    if now.slowdowns and not now.processes:
        reasons = ", ".join(now.slowdowns)
        text = f"the clocks are held down now, though nothing runs: {reasons}"
        found.append((text, "see cooling and power supply"))
    if now.remapping_pending:
        text = "rows of the memory await remapping"
        found.append((text, f"nvidia-smi --gpu-reset -i {GPUS}, or restart the host"))
    if now.remapping_failed:
        found.append(("a row of the memory could not be remapped", "have the GPU replaced"))
    return found


def _setting_changes(was: GpuSettings, now: GpuSettings) -> Iterator[_Change]:
    if _differ(was.power_limit_w, now.power_limit_w):
        text = f"the power limit is {now.power_limit_w} W, it was {was.power_limit_w} W"
        yield text, f"nvidia-smi -i {GPUS} -pl {was.power_limit_w}; {_ACCEPT}"
    if _differ(was.application_clocks_mhz, now.application_clocks_mhz):
        before, after = _clocks(was.application_clocks_mhz), _clocks(now.application_clocks_mhz)
        sm, memory = was.application_clocks_mhz or (0, 0)
        text = f"the application clocks are {after}, they were {before}"
        yield text, f"nvidia-smi -i {GPUS} -ac {memory},{sm}; {_ACCEPT}"
    if _differ(was.max_clocks_mhz, now.max_clocks_mhz):
        before, after = _clocks(was.max_clocks_mhz), _clocks(now.max_clocks_mhz)
        text = f"the highest clocks are {after}, they were {before}"
        yield text, f"see `nvidia-smi -i {GPUS} -q -d CLOCK`; {_ACCEPT}"
    if _differ(was.ecc, now.ecc):
        text = "ECC is on, it was off" if now.ecc else "ECC is off, it was on"
        yield text, f"nvidia-smi -i {GPUS} -e {int(bool(was.ecc))}, and a restart; {_ACCEPT}"
    errors, before_errors = now.uncorrected_errors, was.uncorrected_errors
    if was.uuid == now.uuid and errors and before_errors is not None and errors > before_errors:
        text = f"{errors - before_errors} uncorrected ECC errors since the table was measured"
        yield text, f"see `nvidia-smi -i {GPUS} -q -d ECC,ROW_REMAPPER`, and have it tested"


def _differ(was: object | None, now: object | None) -> bool:
    """Return whether two values differ, both of which are known."""
    return was is not None and now is not None and was != now


def _clocks(clocks: tuple[int, int] | None) -> str:
    sm, memory = clocks or (0, 0)
    return f"{sm} MHz (memory {memory} MHz)"


def check_driver(record: HostRecord | None, driver: str) -> Iterator[Finding]:
    """Compare the version of the GPUs' driver."""
    was = "" if record is None else record.driver
    remedy = "tuccl bench shows what that changes, and tuccl watch --accept takes it as it is"
    yield from _compared("driver", "the GPUs' driver", was, driver, remedy)


def check_congestion(
    record: HostRecord | None, control: str, *, across_hosts: bool
) -> Iterator[Finding]:
    """Compare TCP's congestion control, where the table has entries for several nodes."""
    was = "" if record is None else record.congestion_control
    remedy = f"sysctl -w net.ipv4.tcp_congestion_control={was}; {_ACCEPT}"
    if across_hosts:
        check = "congestion control"
        yield from _compared(check, f"TCP's {check}", was, control, remedy)


def check_variables(
    environment: Mapping[str, str], base: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Compare NCCL's variables that are set here with those that the table was measured with.

    One that is not set is no change: a prolog lacks what the user's shell sets.

    Args:
        environment: Environment of a job that starts here, without the table.
        base: Variables that every process had; None: unknown.
    """
    check = "variables"
    if base is None:
        return
    differ = list(set_otherwise(site_variables(environment), environment, base))
    for sentence in differ:
        yield warning(check, sentence, "see `tuccl doctor`")
    if not differ:
        yield ok(check, "those of NCCL that are set here are as the table was measured with")


def _compared(check: str, subject: str, was: str, now: str, remedy: str) -> Iterator[Finding]:
    """Compare a setting with that of the measured host; empty: unknown."""
    if not was:
        yield note(check, f"{_UNKNOWN} {subject} on the measured host", _AGAIN)
    elif now and now != was:
        yield warning(check, f"{subject} is {now}, the table was measured under {was}", remedy)
    elif now:
        yield ok(check, f"{subject} is {now}, as it was")
