"""Write the JSON schemas of documents and of the manifest to docs/reference/schemas.

    python scripts/make/write_json_schemas.py [DIRECTORY]

Run it after a change of tuccl/reports/documents, tuccl/reports/host_record.py,
tuccl/shipping/manifest.py, tuccl/workloads/workload_file.py or tuccl/views/page; a test holds the
files against the models.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pydantic import BaseModel

from tuccl.reports.documents.all_documents import DOCUMENTS
from tuccl.reports.documents.watch import WatchDocument
from tuccl.shipping.manifest import ManifestDocument
from tuccl.views.page.tables import ReportDocument
from tuccl.workloads.workload_file import WorkloadFileDocument
from tuccl.workspace.atomic_file import write_atomically

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"


def schema_texts() -> dict[str, str]:
    """The text of each schema by the name of its file."""
    documents: dict[str, type[BaseModel]] = {
        **DOCUMENTS,
        "manifest": ManifestDocument,
        "report": ReportDocument,
        "watch": WatchDocument,
        "workload-file": WorkloadFileDocument,
    }
    return {
        f"{name}.schema.json": json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **document.model_json_schema(mode="serialization"),
            },
            indent=1,
        )
        + "\n"
        for name, document in documents.items()
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
