import json

import pytest

from lookup_tables.provenance import (
    NcclVersion,
    Provenance,
    provenance_from_json,
    provenance_from_text,
    provenance_to_json,
)

H200 = "NCCL 2.28.9, driver 570.1, CUDA 12.8, NVIDIA H200"
MEASURED = Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0", details=H200)


@pytest.mark.parametrize(
    ("text", "beside", "provenance"),
    [
        (f"tuccl 0.1.0 nccl, {H200}", "", MEASURED),
        (
            "tuccl 0.1.0 nccl,executor, NCCL 2.27.3, CUDA 12.8, executor",
            "nccl,executor",
            Provenance(
                "nccl,executor", NcclVersion(2, 27, 3), "0.1.0",
                details="NCCL 2.27.3, CUDA 12.8, executor",
            ),
        ),
        (
            "tuccl 0.1.0 simulated, after NCCL 2.28, calibrated",
            "simulated",
            Provenance("simulated", None, "0.1.0", details="after NCCL 2.28, calibrated"),
        ),
        (
            f"replay of nccl: tuccl 0.1.0 nccl, {H200}",
            "replay",
            Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0", None, True, H200),
        ),
        (
            "replay of nccl: h200x4_nvlink_nccl2.28.9",
            "",
            Provenance("nccl", replayed=True, details="h200x4_nvlink_nccl2.28.9"),
        ),
        ("h200x4", "nccl", Provenance("nccl", details="h200x4")),
        ("simulated", "", Provenance("simulated")),
        ("", "", None),
    ],
)  # fmt: skip
def test_the_text_of_older_releases_is_told_apart(
    text: str, beside: str, provenance: Provenance | None
) -> None:
    assert provenance_from_text(text, beside) == provenance
    if provenance is not None:
        assert provenance.describe() == text
        written = json.loads(json.dumps(provenance_to_json(provenance)))
        assert provenance_from_json(written) == provenance


def test_what_is_measured_and_what_is_not() -> None:
    kinds = ("is_measured", "is_modelled", "is_stand_in")

    def of(backend: str) -> list[bool]:
        return [getattr(Provenance(backend, replayed=True), kind) for kind in kinds]

    assert of("nccl") == of("nccl,executor") == of("my.module:Engine") == [True, False, False]
    assert of("simulated") == [False, True, False]
    assert of("sockets") == [False, False, True]


def test_versions_of_nccl_are_numbers_in_order() -> None:
    assert NcclVersion.of_code(22809) == NcclVersion.parse("2.28.9") == (2, 28, 9)
    assert NcclVersion(2, 9, 9) < NcclVersion(2, 28, 3)
    assert str(NcclVersion(2, 28, 9)) == "2.28.9"
    with pytest.raises(ValueError, match=r"'2\.28' is no version"):
        NcclVersion.parse("2.28")


@pytest.mark.parametrize(
    "change",
    [
        {"backend": "two words"},
        {"nccl_version": "2.28"},
        {"tuccl_version": 1},
        {"replayed": 1},
        {"details": None},
        {"more": 1},
    ],
)
def test_json_that_is_no_provenance_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        provenance_from_json({**provenance_to_json(MEASURED), **change})
