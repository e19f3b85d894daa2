"""Checks of the environment before a search over NCCL: variables, configuration files, GPUs.

A variable that fixes a searched setting would determine every result. NCCL also reads variables
from configuration files, so these are checked as well.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from probes.inputs.regular_file import read_regular_file
from tuccl.errors import MeasurementError
from tuccl.measuring.engines.nccl_variables import (
    OF_NO_CALL,
    OVERRULING,
    PER_PROCESS,
    PLUGIN_VARIABLE,
)


def check_environment(environment: Mapping[str, str], base: Mapping[str, str] | None) -> None:
    """Check the environment of jobs that are compared: with a table, and with stock NCCL.

    Args:
        environment: The user's environment, before a process profile is added.
        base: Variables that every process had when the table was measured; None: unknown.

    Raises:
        MeasurementError: A variable is set that overrules tables, or one of a process that the
            table was not measured with.
    """
    check_overruling(environment)
    for sentence in set_otherwise(PER_PROCESS, environment, base or {}):
        raise MeasurementError(f"{sentence}; unset it")


def set_otherwise(
    names: Iterable[str], environment: Mapping[str, str], base: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each variable whose value differs from that in the base.

    A variable that is not set is left out.
    """
    found = seen_variables(environment)
    for name in names:
        value, place = found.get(name, ("", ""))
        if place and base.get(name) != value:
            measured = f"with {name}={base[name]}" if name in base else "without it"
            yield f"{name}={value} is set in {place}, and the table was measured {measured}"


def check_overruling(environment: Mapping[str, str] = os.environ, plugin: str = "") -> None:
    """Check for variables that overrule the plugin, whatever the process profile.

    Raises:
        MeasurementError: A variable is set that overrules every choice of the plugin.
    """
    found = seen_variables(environment)
    for name in OVERRULING:
        if name in found:
            value, place = found[name]
            raise MeasurementError(
                f"{name}={value} is set in {place}, which overrules any table; unset it, and leave "
                "it unset in the job"
            )
    value, place = found.get(PLUGIN_VARIABLE, ("", ""))
    if value not in {"", plugin}:
        raise MeasurementError(
            f"{PLUGIN_VARIABLE}={value} is set in {place}, which keeps TuCCL's plugin out; unset it"
        )


def site_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return NCCL's variables that a site sets, without those that no call depends on.

    What a table has set in this shell is not the site's.
    """
    of_table = environment.get("TUCCL_PROFILE", "").split()
    return {
        name: value
        for name, (value, _) in seen_variables(environment).items()
        if name.startswith("NCCL_") and not name.startswith(OF_NO_CALL) and name not in of_table
    }


def seen_variables(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return value and origin of each variable that NCCL will see, by name."""
    found = {name: (value, "the environment") for name, value in sorted(environment.items())}
    # A variable that is set already keeps its value.
    for path in configuration_files(environment):
        for name, value in configuration_lines(path):
            found.setdefault(name, (value, str(path)))
    return found


def configuration_files(environment: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the files that NCCL reads variables from: the named one or the user's, the host's."""
    # NCCL 2.28 src/misc/param.cc: an empty name counts as none.
    named = environment.get("NCCL_CONF_FILE")
    home = Path(environment.get("HOME", "/nonexistent")) / ".nccl.conf"
    return Path(named) if named else home, Path("/etc/nccl.conf")


def configuration_lines(path: Path) -> list[tuple[str, str]]:
    """Return the NAME=VALUE lines of a file, none where it cannot be read; `#` begins a comment."""
    try:
        lines = read_regular_file(path).decode(errors="replace").splitlines()
    except OSError:
        return []
    pairs = (line.split("#", 1)[0].split("=", 1) for line in lines)
    return [(pair[0].strip(), pair[1].strip()) for pair in pairs if len(pair) == 2]


def count_gpus_or_1() -> int:
    """Return the number of GPUs visible to this process; 1 if there are none, as for a model."""
    with suppress(MeasurementError):
        return count_gpus()
    return 1


def count_gpus(needed: int = 1) -> int:
    """Return the number of GPUs visible to this process.

    Raises:
        MeasurementError: There are fewer than `needed`.
    """
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MeasurementError(
            f"no NVIDIA driver here ({error}); measure on a host with GPUs, or with another backend"
        ) from error
    result = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if result != 0 or count.value < needed:
        raise MeasurementError(
            f"GPUs needed: {needed}, visible here: {count.value} (CUDA error {result}); see "
            "CUDA_VISIBLE_DEVICES, or measure with another backend"
        )
    return count.value
