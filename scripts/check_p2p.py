"""Runs the P2P benchmark several times on a machine with GPUs and shows what it finds.

One line per directed pair: the medians over all runs, how far the runs' medians lie apart, and
whether the figure agrees with what the links look like. Then one line per GPU: copies with host
memory, alone and all GPUs at once, and with all other GPUs at once.

Needs two NVIDIA GPUs or more and the compiled benchmark (TUCCL_P2P_BENCHMARK may name it). Exit
code 0 when look and measurement agree everywhere, 1 when they do not, 2 when nothing can be
measured here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from probes.errors import ProbeError  # noqa: E402
from probes.files.read import read_topology  # noqa: E402
from probes.host.probe import HostProbeOptions, probe_host  # noqa: E402
from probes.p2p.apply import apply_p2p  # noqa: E402
from probes.p2p.report import P2pReport, What  # noqa: E402
from probes.p2p.run import P2pOptions, run_p2p  # noqa: E402

PAIR_COLUMNS = (
    ("CE", What.COPY_ENGINE),
    ("CE in round", What.COPY_ENGINE_CONCURRENT),
    ("CE both", What.COPY_ENGINE_BOTH),
    ("kernel write", What.KERNEL_WRITE),
    ("kernel read", What.KERNEL_READ),
    ("kernel both", What.KERNEL_WRITE_BOTH),
    ("write us", What.WRITE_LATENCY),
    ("flag us", What.FLAG_LATENCY),
)
GPU_COLUMNS = (
    ("to host", What.GPU_TO_HOST),
    ("all to host", What.GPU_TO_HOST_CONCURRENT),
    ("from host", What.HOST_TO_GPU),
    ("all from host", What.HOST_TO_GPU_CONCURRENT),
    ("to all others", What.FAN_OUT),
    ("from all others", What.FAN_IN),
)
OF_BOTH_DIRECTIONS = {What.COPY_ENGINE_BOTH, What.KERNEL_WRITE_BOTH, What.FLAG_LATENCY}


def medians(reports: Sequence[P2pReport], what: What, gpus: tuple[int, ...]) -> list[float]:
    """Of every run that has the figure."""
    ends = tuple(sorted(gpus)) if what in OF_BOTH_DIRECTIONS else gpus
    figures = (report.figure(what, *ends) for report in reports)
    return [figure.median for figure in figures if figure is not None]


def cell(values: Sequence[float], what: What) -> str:
    """The median over the runs, and how far the runs lie apart."""
    if not values:
        return "-"
    middle = statistics.median(values)
    digits = 2 if what in {What.WRITE_LATENCY, What.FLAG_LATENCY} else 1
    return f"{middle:.{digits}f} ±{(max(values) - min(values)) / 2 / middle:.1%}"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )


def main() -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--topology", type=Path, help="static picture; by default this host's look")
    arguments = parser.parse_args()
    try:
        static = (
            read_topology(arguments.topology)
            if arguments.topology
            else probe_host(HostProbeOptions(measure_p2p=False)).topology
        )
        reports = []
        for number in range(1, max(arguments.runs, 1) + 1):
            begin = time.monotonic()
            reports.append(run_p2p(P2pOptions()))
            print(
                f"run {number}: {time.monotonic() - begin:.1f} s, measuring "
                f"{reports[-1].seconds:.1f} s of it",
                file=sys.stderr,
            )
        applied = [apply_p2p(static, report) for report in reports]
    except ProbeError as error:
        print(f"check_p2p: {error}", file=sys.stderr)
        return 2
    names = [gpu.bus_id for gpu in reports[0].gpus]
    pairs = [(a, b) for a in range(len(names)) for b in range(len(names)) if a != b]
    by_name = {(pair.src, pair.dst): pair for pair in applied[-1].pairs}
    known = {device.bus_id: device.name for device in static.gpus}
    rows = []
    for a, b in pairs:
        found = by_name.get((known.get(names[a], ""), known.get(names[b], "")))
        look = f"{found.look} {found.promised_gb_per_s:g}" if found else "not seen"
        agrees = "-" if found is None or found.measured is None else "no"
        if found is not None and found.measured is not None and not found.disagreement:
            agrees = "yes"
        figures = [cell(medians(reports, what, (a, b)), what) for _, what in PAIR_COLUMNS]
        rows.append([f"{names[a]} -> {names[b]}", look, *figures, agrees])
    print_table(["pair", "look", *(title for title, _ in PAIR_COLUMNS), "agrees"], rows)
    print()
    rows = [
        [name, *(cell(medians(reports, what, (place,)), what) for _, what in GPU_COLUMNS)]
        for place, name in enumerate(names)
    ]
    print_table(["GPU", *(title for title, _ in GPU_COLUMNS)], rows)
    told = list(dict.fromkeys(words for result in applied for words in result.disagreements))
    notes = list(dict.fromkeys(note for report in reports for note in report.notes))
    print("\n".join(["", *told, *notes]) if told or notes else "\nlook and measurement agree")
    fingerprints = {result.topology.fingerprint() for result in applied}
    print(f"fingerprints of the measured machine over {len(reports)} runs: {len(fingerprints)}")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
