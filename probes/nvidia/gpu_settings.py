"""Settings of GPUs that a table's times depend on, and their condition now, by NVML.

A value that NVML does not report is None and is never compared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Settings of a GPU that stay until someone changes them."""

    uuid: str | None
    power_limit_w: int | None
    max_clocks_mhz: tuple[int, int] | None
    """Highest clocks of the multiprocessors and of the memory."""
    application_clocks_mhz: tuple[int, int] | None
    """Clocks set for applications, likewise."""
    ecc: bool | None
    uncorrected_errors: int | None
    """Uncorrected ECC errors over the life of the GPU."""


@dataclass(frozen=True, slots=True)
class GpuCondition:
    """The condition of a GPU at one moment."""

    slowdowns: tuple[str, ...]
    """Reasons why its clocks are held down."""
    remapping_pending: bool
    remapping_failed: bool
    processes: int
    """Processes that compute on it."""
    takes_one_process: bool = False
    """Whether its compute mode refuses a second process."""


@dataclass(frozen=True, slots=True)
class GpuStates:
    """All GPUs by NVML's index; without NVML there are none."""

    driver: str = ""
    settings: tuple[GpuSettings, ...] = ()
    conditions: tuple[GpuCondition, ...] = ()
    problem: str = ""
    """NVML's message if it does not answer."""


def read_gpu_states() -> GpuStates:
    """Read settings and condition of all GPUs, which takes a few ms per GPU."""
    calls = NvmlCalls()
    try:
        calls.start()
    except NvmlCallError as error:
        return GpuStates(problem=error.words)
    try:
        gpus = range(calls.gpu_count())
        return GpuStates(
            _known(calls.driver_version) or "",
            tuple(_settings(calls, gpu) for gpu in gpus),
            tuple(_condition(calls, gpu) for gpu in gpus),
        )
    except NvmlCallError as error:
        return GpuStates(problem=error.words)
    finally:
        with suppress(NvmlCallError):
            calls.stop()


def _settings(calls: NvmlCalls, gpu: int) -> GpuSettings:
    return GpuSettings(
        _known(lambda: calls.uuid(gpu)),
        _known(lambda: calls.power_limit_w(gpu)),
        _known(lambda: calls.max_clocks_mhz(gpu)),
        _known(lambda: calls.application_clocks_mhz(gpu)),
        _known(lambda: calls.ecc_enabled(gpu)),
        _known(lambda: calls.uncorrected_errors(gpu)),
    )


def _condition(calls: NvmlCalls, gpu: int) -> GpuCondition:
    pending, failed = _known(lambda: calls.row_remapping(gpu)) or (False, False)
    slowdowns = _known(lambda: calls.slowdowns(gpu)) or ()
    processes = _known(lambda: calls.processes(gpu)) or 0
    one = _known(lambda: calls.takes_one_process(gpu)) or False
    return GpuCondition(slowdowns, pending, failed, processes, one)


def _known(call: Callable[[], _T]) -> _T | None:
    """Return the answer; None if NVML has none."""
    try:
        return call()
    except NvmlCallError:
        return None
