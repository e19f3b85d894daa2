"""Constants as JSON: written, read, and refused where they are invalid."""

import json
from pathlib import Path

import pytest

from tuccl.errors import InputFileError
from tuccl.measuring.calibration.model_file import make_model_file, model_file_text, read_model_file
from tuccl.models.model_constants import SHIPPED


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    model = make_model_file(
        SHIPPED, tuccl="0.1.0", topology="ab" * 16, source="x.csv", observations=9, median_error=0.1
    )
    path.write_text(model_file_text(model))
    return path


def test_constants_survive_being_written(written: Path) -> None:
    assert read_model_file(written).constants == SHIPPED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_version": 2}, "model_version: Input should be 1"),
        ({"launch_us": -1.0}, "constants.launch_us: Input should be greater than 0"),
        ({"launch_us": float("nan")}, "constants.launch_us: .*"),
        ({"launch_us": "4.5"}, "constants.launch_us: Input should be a valid number"),
        ({"speed": 1.0}, "constants.speed: Unexpected keyword"),
    ],
)
def test_what_is_no_constant_is_named(
    written: Path, change: dict[str, object], message: str
) -> None:
    document = json.loads(written.read_text())
    target = document if "model_version" in change else document["constants"]
    target.update(change)
    written.write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=message) as caught:
        read_model_file(written)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", "nothing"])
def test_what_is_no_model_at_all_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match=r"model\.json"):
        read_model_file(path)
    with pytest.raises(InputFileError, match="cannot read"):
        read_model_file(tmp_path / "absent.json")
