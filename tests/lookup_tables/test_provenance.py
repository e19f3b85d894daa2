import json

import pytest

from lookup_tables.provenance import (
    NcclVersion,
    Provenance,
    provenance_from_json,
    provenance_to_json,
)

H200 = "NCCL 2.28.9, driver 570.1, CUDA 12.8, NVIDIA H200"
MEASURED = Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0", details=H200)


@pytest.mark.parametrize(
    ("provenance", "text"),
    [
        (MEASURED, f"tuccl 0.1.0 nccl, {H200}"),
        (
            Provenance("nccl", replayed=True, details="h200x4_nvlink"),
            "replay of nccl: h200x4_nvlink",
        ),
        (Provenance("simulated"), "simulated"),
    ],
)
def test_a_provenance_has_a_line_for_display_and_a_json_form(
    provenance: Provenance, text: str
) -> None:
    assert provenance.describe() == text
    assert (
        provenance_from_json(json.loads(json.dumps(provenance_to_json(provenance)))) == provenance
    )


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
    with pytest.raises(ValueError, match=r"'2\.28' is not a version"):
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
