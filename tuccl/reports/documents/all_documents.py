"""Documents of `--json` by the names of their schemas.

scripts/make/write_json_schemas.py writes the schema of each to docs/reference/schemas, and
docs/reference/json.md describes them.
"""

from __future__ import annotations

from pydantic import BaseModel

from tuccl.reports.documents.bench import BenchDocument, BenchUpgradeDocument
from tuccl.reports.documents.doctor import DoctorDocument, ShipCheckDocument
from tuccl.reports.documents.job_bench import JobBenchDocument
from tuccl.reports.documents.job_trim import JobTrimDocument
from tuccl.reports.documents.shipped import ExportDocument, ShipDocument, ShowDocument
from tuccl.reports.documents.table import (
    ExplainDocument,
    RetuneDocument,
    RetunePlanDocument,
    TableDocument,
)
from tuccl.reports.documents.verify import VerifyDocument
from tuccl.reports.documents.versions import DiffDocument, HistoryDocument, RollbackDocument
from tuccl.reports.documents.workload import WorkloadDocument

DOCUMENTS: dict[str, type[BaseModel]] = {
    "table": TableDocument,
    "retune": RetuneDocument,
    "retune-plan": RetunePlanDocument,
    "explain": ExplainDocument,
    "ship": ShipDocument,
    "ship-check": ShipCheckDocument,
    "show": ShowDocument,
    "export": ExportDocument,
    "history": HistoryDocument,
    "rollback": RollbackDocument,
    "diff": DiffDocument,
    "doctor": DoctorDocument,
    "verify": VerifyDocument,
    "bench": BenchDocument,
    "workload": WorkloadDocument,
    "bench-upgrade": BenchUpgradeDocument,
    "workload-bench": JobBenchDocument,
    "workload-trim": JobTrimDocument,
}
"""Documents by the name of the schema's file; `init` and `tune` print that of `table`."""
