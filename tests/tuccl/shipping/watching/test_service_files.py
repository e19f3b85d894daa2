"""Units of systemd and Slurm's health check: what reads them takes them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tuccl.errors import UsageError
from tuccl.shipping.watching.service_files import service_file, slurm_health_check, timer_file


@pytest.mark.parametrize("name", ["/shared/tuccl", '/shared/of "me" at 5 % $x'])
def test_systemd_takes_the_units(tmp_path: Path, name: str) -> None:
    assert complaints_of_systemd(tmp_path, service_file(Path(name)), timer_file()) == []


@pytest.mark.parametrize("change", [("ExecStart=", "ExecStart=/no"), ("15min", "15 minuets")])
def test_systemd_does_not_take_units_that_are_wrong(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    service, timer = service_file(Path("/shared/tuccl")), timer_file()
    wrong = [text.replace(*change) for text in (service, timer)]
    assert wrong != [service, timer]
    assert complaints_of_systemd(tmp_path, *wrong) != []


def complaints_of_systemd(folder: Path, service: str, timer: str) -> list[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    units = {"service": service, "timer": timer}
    paths = [folder / f"tuccl-watch.{kind}" for kind in units]
    for path, text in zip(paths, units.values(), strict=True):
        path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in done.stderr.splitlines() if "tuccl-watch" in line]


def test_a_name_that_no_unit_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot stand in a unit"):
        service_file(Path("/shared/a\nb"))


@pytest.mark.parametrize("shell", ["dash", "bash", "shellcheck"])
def test_shells_take_the_health_check(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    script = tmp_path / "check.sh"
    script.write_text(slurm_health_check(Path("/shared/it's")))
    words = [shell, str(script)] if shell == "shellcheck" else [shell, "-n", str(script)]
    subprocess.run(words, check=True)


@pytest.mark.parametrize(
    ("code", "said", "drained"),
    [
        (0, "", False),
        (1, "changed    machine: NIC n0/nic0 is missing", True),
        (1, "a warning\nchanged    machine: NIC n0/nic0 is missing", True),
        (1, "Traceback (most recent call last):", False),
        (3, "unchecked  nothing could be measured", False),
    ],
)
def test_the_health_check_drains_a_node_that_changed_and_no_other(
    tmp_path: Path, code: int, said: str, drained: bool
) -> None:
    script = slurm_health_check(Path("/shared/tuccl"))
    for name, text in {
        "watch": f"echo '{said}'\nexit {code}",
        "scontrol": f'echo "$@" >> {tmp_path}/drained',
        "logger": f'echo "$@" >> {tmp_path}/logged',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (line,) = [line for line in script.splitlines() if line.startswith("said=")]
    script = script.replace(line, "said=$(watch 2>&1)")
    script = script.replace("PATH=/usr/sbin", f"PATH={tmp_path}:/usr/sbin")
    path = tmp_path / "check.sh"
    path.write_text(script)
    variables = {**os.environ, "SLURMD_NODENAME": "node7"}
    assert subprocess.run(["/bin/sh", str(path)], env=variables, check=False).returncode == 0
    assert (tmp_path / "drained").exists() is drained
    if drained:
        order = (tmp_path / "drained").read_text()
        assert order.startswith("update NodeName=node7 State=DRAIN Reason=tuccl watch: changed")
    assert (tmp_path / "logged").exists() is (code != 0)
