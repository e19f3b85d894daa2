"""The schemas of JSON documents, and the page of all their members."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from tuccl.cli.export import TableExport
from tuccl.reports.explanation import ExplainedCall
from tuccl.reports.json_form import schema_of as schema_of_type
from tuccl.reports.learned import Learned
from tuccl.reports.table_difference import TableDifference
from tuccl.reports.table_document import RetunePlanResult, RetuneResult, TableDocument
from tuccl.reports.workspace_runs import WorkspaceRuns
from tuccl.schedules.verification import Verification
from tuccl.shipping.bench.job_parts import TrimResult
from tuccl.shipping.bench.own_job import JobBenchResult
from tuccl.shipping.bench.result import BenchResult
from tuccl.shipping.bench.upgrade import UpgradeResult
from tuccl.shipping.doctor.diagnosis import Diagnosis
from tuccl.shipping.doctor.ship_check import ShipCheck
from tuccl.shipping.manifest import ManifestDocument
from tuccl.shipping.rollback import RolledBack
from tuccl.shipping.shipment import Shipped
from tuccl.shipping.shown_table import History, ShownTable
from tuccl.shipping.watching.watch import WatchResult
from tuccl.tuning.pipeline.learned_run import LearnedImport
from tuccl.views.page.tables import ReportDocument
from tuccl.views.page.verdicts import VerdictDocument
from tuccl.views.terminal.workload_display import WorkloadFigures
from tuccl.workloads.workload_file import WorkloadFileDocument

HEAD = """\
# Members of the JSON documents

Every member of what `--json` prints and of `tuccl-manifest.json`, with its type and meaning.
[JSON documents](json.md) says which command prints which document, and explains the members.
"""
RESULTS: dict[str, type] = {
    "table": TableDocument,
    "retune": RetuneResult,
    "retune-plan": RetunePlanResult,
    "explain": ExplainedCall,
    "ship": Shipped,
    "ship-check": ShipCheck,
    "show": ShownTable,
    "export": TableExport,
    "history": History,
    "runs": WorkspaceRuns,
    "rollback": RolledBack,
    "diff": TableDifference,
    "doctor": Diagnosis,
    "verify": Verification,
    "bench": BenchResult,
    "bench-upgrade": UpgradeResult,
    "workload": WorkloadFigures,
    "workload-bench": JobBenchResult,
    "workload-trim": TrimResult,
    "watch": WatchResult,
    "report": ReportDocument,
    "report-verdicts": VerdictDocument,
    "learned": Learned,
    "learned-import": LearnedImport,
}
"""Results by the name of their schema; `init` and `tune` print that of `table`."""
FILES: dict[str, type[BaseModel]] = {
    "manifest": ManifestDocument,
    "workload-file": WorkloadFileDocument,
}
_REFERENCE = "#/$defs/"

Schema = dict[str, Any]


def schema_of(name: str) -> Schema:
    """The schema of a document."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    if name in FILES:
        return {**head, **FILES[name].model_json_schema(mode="serialization")}
    return {**head, **schema_of_type(RESULTS[name])}


def schema_texts() -> dict[str, str]:
    """The schema of each document as text."""
    return {name: json.dumps(schema_of(name), indent=1) + "\n" for name in (*RESULTS, *FILES)}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type(schema: Schema, anchors: dict[str, str]) -> str:
    """The type of a member in words, with links to its parts."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return f"[`{name}`](#{anchors[name]})"
    if "anyOf" in schema:
        return " or ".join(_type(part, anchors) for part in schema["anyOf"])
    if "items" in schema:
        return f"list of {_type(schema['items'], anchors)}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'], anchors)}"
    return _plain_type(schema)


def _plain_type(schema: Schema) -> str:
    """The type of a member without parts."""
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])}"
    return str(schema.get("type", "any value"))


def _section(heading: str, schema: Schema, anchors: dict[str, str]) -> str:
    parts = [f"## {heading}"]
    if "description" in schema:
        parts.append(" ".join(str(schema["description"]).split()))
    if "properties" not in schema:
        parts.append(f"Type: {_type(schema, anchors)}.")
        return "\n\n".join(parts)
    rows = [
        f"| `{name}` | {_type(member, anchors)} | {_cell(member.get('description', ''))} |"
        for name, member in schema["properties"].items()
    ]
    parts.append("\n".join(["| member | type | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def page() -> str:
    """The text of the page: documents, then their parts, each once."""
    documents: list[str] = []
    parts: dict[str, tuple[str, Schema]] = {}
    texts: dict[str, str] = {}
    for document in sorted({*RESULTS, *FILES}):
        schema = schema_of(document)
        anchors: dict[str, str] = {}
        for name, part in schema.get("$defs", {}).items():
            is_known = parts.get(name, (name, part))[1] == part
            key = name if is_known else f"{name} of {document}"
            parts.setdefault(key, (name, part))
            anchors[name] = key.lower().replace(" ", "-")
        for key, (name, part) in parts.items():
            if name in anchors and anchors[name] == key.lower().replace(" ", "-"):
                texts.setdefault(key, _section(f"`{key}`", part, anchors))
        documents.append(_section(f"`{document}`", schema, anchors))
    return "\n\n".join([HEAD.rstrip(), *documents, *(texts[key] for key in sorted(texts))]) + "\n"
