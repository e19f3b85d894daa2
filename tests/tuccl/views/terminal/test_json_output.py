"""JSON on standard output."""

import json

import pytest

from tuccl.views.terminal.json_output import print_json


def test_a_document_has_a_version_and_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"name": "vierundsechzig Größen", "of": [1, 2]}, 3)
    out = capsys.readouterr().out
    assert out.endswith("}\n")
    assert json.loads(out) == {"schema_version": 3, "name": "vierundsechzig Größen", "of": [1, 2]}
    assert out.isascii(), "whatever the locale's encoding"


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_not_printed(
    figure: float, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        print_json({"ratio": figure}, 1)
    assert capsys.readouterr().out == ""
