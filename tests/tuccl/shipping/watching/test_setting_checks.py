"""Settings of GPUs, the driver and TCP against those recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probes.nvidia.gpu_settings import GpuCondition, GpuSettings, GpuStates
from tests.tuccl.shipping.watching.watched_tables import GPU, WELL, states_of
from tuccl.reports.host_record import HostRecord
from tuccl.shipping.doctor.findings import Finding, Severity
from tuccl.shipping.watching.setting_checks import (
    check_congestion,
    check_driver,
    check_gpus,
    check_variables,
)

RECORD = HostRecord("node", "580.1", "cubic", (GPU, GPU), {})


def changes(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(each.text, each.mend) for each in findings if each.severity is Severity.WARNING]


def test_the_same_settings_are_no_change() -> None:
    found = [*check_gpus(RECORD, states_of(GPU, GPU)), *check_driver(RECORD, "580.1")]
    assert [each.severity for each in found] == [Severity.OK, Severity.OK]


@pytest.mark.parametrize(
    ("now", "said", "mend"),
    [
        (replace(GPU, power_limit_w=500), "the power limit is 500 W, it was 700 W", "-i 1 -pl 700"),
        (
            replace(GPU, application_clocks_mhz=(1200, 3201)),
            "the application clocks are 1200 MHz (memory 3201 MHz), they were 1980 MHz",
            "nvidia-smi -i 1 -ac 3201,1980",
        ),
        (replace(GPU, max_clocks_mhz=(1700, 3201)), "the highest clocks are 1700 MHz", "-q -d CLO"),
        (replace(GPU, ecc=False), "ECC is off, it was on", "nvidia-smi -i 1 -e 1"),
        (replace(GPU, uncorrected_errors=2), "2 uncorrected ECC errors since", "ROW_REMAPPER"),
    ],
)
def test_each_setting_is_named_with_the_command_that_restores_it(
    now: GpuSettings, said: str, mend: str
) -> None:
    ((text, remedy),) = changes(list(check_gpus(RECORD, states_of(GPU, now))))
    assert text.startswith(f"GPU 1: {said}")
    assert mend in remedy


def test_a_value_that_is_not_known_is_no_change() -> None:
    unknown = GpuSettings(None, None, None, None, None, None)
    assert changes(list(check_gpus(RECORD, states_of(unknown, GPU)))) == []
    blank = replace(RECORD, gpus=(unknown, GPU))
    assert changes(list(check_gpus(blank, states_of(GPU, GPU)))) == []


def test_errors_of_another_gpu_are_no_change() -> None:
    exchanged = replace(GPU, uuid="GPU-9", uncorrected_errors=7)
    assert changes(list(check_gpus(RECORD, states_of(GPU, exchanged)))) == []


def test_one_change_of_all_gpus_is_one_finding() -> None:
    capped = replace(GPU, power_limit_w=500)
    ((text, remedy),) = changes(list(check_gpus(RECORD, states_of(capped, capped))))
    assert text.startswith("GPU 0,1: the power limit")
    assert remedy.startswith("nvidia-smi -i 0,1 -pl 700")


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            GpuCondition(("power brake",), False, False, 0),
            "held down now, though nothing runs: power brake",
        ),
        (GpuCondition((), True, False, 0), "await remapping"),
        (GpuCondition((), False, True, 0), "could not be remapped"),
    ],
)
@pytest.mark.parametrize("record", [RECORD, None])
def test_a_condition_is_named_whatever_was_recorded(
    record: HostRecord | None, condition: GpuCondition, said: str
) -> None:
    states = GpuStates("580.1", (GPU, GPU), (WELL, condition))
    ((text, _),) = changes(list(check_gpus(record, states)))
    assert text.startswith("GPU 1: ")
    assert said in text


def test_a_job_that_heats_its_gpu_is_no_change() -> None:
    hot = replace(WELL, slowdowns=("hardware thermal slowdown",), processes=1)
    found = list(check_gpus(RECORD, GpuStates("580.1", (GPU, GPU), (WELL, hot))))
    assert changes(found) == []
    (said,) = [each.text for each in found if each.severity is Severity.NOTE]
    assert said == "GPU 1: its processes hold the clocks down now: hardware thermal slowdown"


def test_an_nvml_that_answers_no_more_is_a_change() -> None:
    ((text, _),) = changes(list(check_gpus(RECORD, GpuStates(problem="Driver Not Loaded"))))
    assert text == "NVML does not answer: Driver Not Loaded"
    assert changes(list(check_gpus(replace(RECORD, gpus=()), GpuStates(problem="none")))) == []


def test_another_driver_and_another_congestion_control_are_named() -> None:
    ((driver, _),) = changes(list(check_driver(RECORD, "590.2")))
    assert driver == "the GPUs' driver is 590.2, the table was measured under 580.1"
    ((control, mend),) = changes(list(check_congestion(RECORD, "bbr", across_hosts=True)))
    assert control == "TCP's congestion control is bbr, the table was measured under cubic"
    assert "tcp_congestion_control=cubic" in mend
    assert list(check_congestion(RECORD, "bbr", across_hosts=False)) == []
    assert changes(list(check_congestion(RECORD, "cubic", across_hosts=True))) == []


def test_what_an_earlier_manifest_lacks_is_unknown_and_no_change() -> None:
    found = [
        *check_gpus(None, states_of(GPU)),
        *check_driver(None, "580.1"),
        *check_congestion(None, "bbr", across_hosts=True),
    ]
    assert [each.severity for each in found] == [Severity.NOTE] * 3
    assert all("the manifest does not say" in each.text for each in found)


def test_a_variable_that_is_set_otherwise_is_named_and_one_that_is_not_set_is_none(
    tmp_path: Path,
) -> None:
    conf = tmp_path / ".nccl.conf"
    conf.write_text("NCCL_IB_TC=106\n")
    here = {"HOME": str(tmp_path), "NCCL_BUFFSIZE": "1", "NCCL_DEBUG": "INFO", "OTHER": "2"}
    base = {"NCCL_IB_TC": "105", "NCCL_IB_HCA": "mlx5"}
    assert [text for text, _ in changes(list(check_variables(here, base)))] == [
        "NCCL_BUFFSIZE=1 is set in the environment, and the table was measured without it",
        f"NCCL_IB_TC=106 is set in {conf}, and the table was measured with NCCL_IB_TC=105",
    ]
    same = {"HOME": str(tmp_path), "NCCL_IB_TC": "106"}
    (found,) = check_variables(same, {**base, "NCCL_IB_TC": "106"})
    assert found.severity is Severity.OK
    assert list(check_variables(here, None)) == []
