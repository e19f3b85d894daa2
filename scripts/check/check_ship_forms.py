"""Ship a table in every form, and start a job by each as the form's reader does.

A root like a container's has shells, a stand-in of NCCL that loads the plugin, and a job of one
rank; no process can write to it. A table is shipped beside it, and jobs find it at /opt/tuccl.
Where docker's command, systemd, mpirun, enroot, busybox and kubectl are on the search path, they
read the files; without them rules do that they document, or a row is not run. Printed is a row for
each: form, reader, whether the plugin was loaded, whether it loaded this table, exit code.
Needs root, for mounts: elsewhere it says so, and ends with 0. Exit code 0: all jobs that ran have
the table; 1: one has not; 2: an option is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kubernetes_builds import KubectlMissingError  # noqa: E402
from ship_container import Container, add_busybox, is_root  # noqa: E402
from ship_readers import STARTS, Node, ReaderMissingError, ReadingError, Start  # noqa: E402

from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns, build_stand_ins  # noqa: E402
from tests.tuccl.shipping.job_roots import PLACE, make_job_root, run_of_one_rank  # noqa: E402
from tuccl.shipping.forms import Form  # noqa: E402
from tuccl.shipping.shipment import ship  # noqa: E402

PROGRAMS = ("busybox", "env", "setpriv")
_COLUMNS = ("form", "reader", "plugin loaded", "table found", "rc")


def main() -> int:
    """Start a job by each form; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=list(STARTS), help="this form alone")
    arguments = parser.parse_args()
    if not is_root():
        print("not run: mounts need root, and a kernel that lets it mount")
        return 0
    with tempfile.TemporaryDirectory(prefix="tuccl-forms-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        try:
            node = make_node(work, build_stand_ins(work))
        except pytest.skip.Exception as missing:
            print(f"not run: {missing}")
            return 0
        print(_line(_COLUMNS))
        print(_line(["---"] * len(_COLUMNS)))
        wanted = STARTS if arguments.form is None else {arguments.form: STARTS[arguments.form]}
        results = [row(form, start, node) for form, starts in wanted.items() for start in starts]
    return 0 if all(results) else 1


def make_node(work: Path, stand_ins: StandIns) -> Node:
    """Make a root, and ship a table in all forms beside it."""
    root = make_job_root(work / "root", stand_ins, PROGRAMS)
    add_busybox(root.root)
    shipped = work / "shared" / "tuccl"
    ship(run_of_one_rank(work / "run"), shipped, forms=tuple(Form), place=Path(PLACE))
    return Node(shipped, PLACE, Container(root.root, work), work)


def row(form: str, start: Start, node: Node) -> bool:
    """Start a job and print its row; return whether it is as it should be."""
    crc = json.loads((node.shipped / "tuccl-manifest.json").read_text())["bundle_crc"]
    try:
        reader, outcome = start(node)
    except (ReaderMissingError, KubectlMissingError) as missing:
        print(_line([form, f"not run: {missing}", "", "", ""]))
        return True
    except ReadingError as error:
        print(_line([form, f"failed: {error}", "no", "no", ""]))
        return False
    found = outcome.has_table(node.place, crc)
    loaded = outcome.loads_plugin
    said = ["yes" if each else "no" for each in (loaded, found)]
    print(_line([form, reader, *said, str(outcome.code)]), flush=True)
    expected = form != "none"
    if (right := (loaded, found, outcome.code) == (expected, expected, 0)) is False:
        print(f"{outcome.complaints}{outcome.log}", file=sys.stderr)
    return right


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
