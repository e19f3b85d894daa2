"""Write the JSON schemas of documents and of the manifest to docs/reference/schemas.

    python scripts/make/write_json_schemas.py [DIRECTORY]

Run it after a change of a result, the manifest or the workload's file; a test compares them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pydantic import BaseModel

from tuccl.cli.commands.shipped.export import Export
from tuccl.cli.commands.verify import Verification
from tuccl.reports.json_form import schema_of
from tuccl.reports.table_difference import TableDifference
from tuccl.reports.table_result import ExplainedCall, RetunePlanResult, RetuneResult, TableResult
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
from tuccl.views.page.tables import ReportDocument
from tuccl.views.terminal.workload_display import WorkloadFigures
from tuccl.workloads.workload_file import WorkloadFileDocument
from tuccl.workspace.atomic_file import write_atomically

RESULTS: dict[str, type] = {
    "table": TableResult,
    "retune": RetuneResult,
    "retune-plan": RetunePlanResult,
    "explain": ExplainedCall,
    "ship": Shipped,
    "ship-check": ShipCheck,
    "show": ShownTable,
    "export": Export,
    "history": History,
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
}
"""Results by the name of their schema; `init` and `tune` print that of `table`."""
FILES: dict[str, type[BaseModel]] = {
    "manifest": ManifestDocument,
    "workload-file": WorkloadFileDocument,
}
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"


def schema_texts() -> dict[str, str]:
    """The text of each schema by the name of its file."""
    schemas = {name: schema_of(kind) for name, kind in RESULTS.items()} | {
        name: document.model_json_schema(mode="serialization") for name, document in FILES.items()
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {
        f"{name}.schema.json": json.dumps({**head, **schema}, indent=1) + "\n"
        for name, schema in schemas.items()
    }


def main() -> None:
    """Write all schemas."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", nargs="?", type=Path, default=SCHEMAS)
    directory = parser.parse_args().directory
    for name, text in schema_texts().items():
        write_atomically(directory / name, text)
        print(directory / name)


if __name__ == "__main__":
    main()
