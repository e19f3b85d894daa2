"""The JSON that commands print is valid under the schemas of the documents."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from json_reference import schema_of

from synthesizer.formats.msccl_xml import write_msccl_xml
from tests.synthesizer.programs.schedules import exchange
from tests.tuccl.conftest import Run
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.json_form import json_of
from tuccl.reports.table_document import table_document
from tuccl.reports.tuning_result import TuningResult
from tuccl.workspace.runs import Run as WorkspaceRun

pytestmark = pytest.mark.long


def check(name: str, text: str) -> Any:
    """Validate a document, and return it."""
    document = json.loads(text)
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    return document


@pytest.mark.usefixtures("tuned")
def test_table_explain_ship_and_retune_print_valid_documents(
    run_inside: Run, tmp_path: Path, h200: Path
) -> None:
    check("table", run_inside("table", "--json").stdout)
    for call in (("all_gather", "4M"), ("all_reduce", "1G")):
        check("explain", run_inside("explain", *call, "--json").stdout)
    shipped = check("ship", run_inside("ship", "shipped", "--json").stdout)
    assert all(Path(path).is_file() for path in shipped["files"])
    same = check("retune", run_inside("retune", "--json").stdout)
    assert (same["changes"], same["tuned"], same["kept"]) == ([], False, None)
    older = tmp_path / "older.xml"
    older.write_text(h200.read_text().replace('sm="90"', 'sm="80"'))
    changed = check("retune", run_inside("retune", "--topology", older, "--json").stdout)
    assert changed["changes"]
    assert changed["tuned"]


def test_init_and_tune_print_the_document_of_table(run_inside: Run, h200: Path) -> None:
    key = ("--operations", "all_gather", "--min-size", "64K", "--max-size", "64K", "--json")
    check("table", run_inside("init", "--topology", h200, *key).stdout)
    check("table", run_inside("tune", "--topology", h200, *key).stdout)


def test_a_measured_table_with_the_executor_is_a_valid_document(
    tmp_path: Path,
) -> None:
    table, report = tuned(FOUR_GPUS)
    run = TuningResult(table, WorkspaceRun(tmp_path), report, already_done=True, has_executor=True)
    document = check("table", json.dumps(json_of(table_document(run))))
    assert document["keys_by_runner"] == {"executor": 2, "plugin": 1, "nccl": 1}
    assert document["obstacles"] == {}
    assert document["caveats"] == []


def test_verify_prints_valid_documents(run_inside: Run, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.xml", tmp_path / "wrong.xml"
    right.write_text(write_msccl_xml(exchange()))
    wrong.write_text(write_msccl_xml(exchange()).replace('type="r"', 'type="nop"'))
    assert check("verify", run_inside("verify", right, "--json").stdout)["proved"]
    assert check("verify", run_inside("verify", wrong, "--json").stdout)["defects"]
