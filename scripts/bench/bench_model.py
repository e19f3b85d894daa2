"""Compare predictions of NCCL's model with measured times to which it was not fitted.

Two tables. The first leaves one size of the recorded grid of four H200 out, fits the constants to
the other sizes and predicts that one: error of the time, rank correlation of the configurations of
a key, whether the model's best tenth holds the true winner. The second leaves one machine out,
fits to the grid and all other machines, and predicts stock NCCL's times there. Last come the
constants fitted to all data, which `tuccl.models.model_constants.SHIPPED` rounds.

With `--multicast` it compares NVLS and its trees on H100 with published times instead: nothing was
fitted to any of them, the constants are those of rings.

    python scripts/bench/bench_model.py     # needs the shared data, a minute
    python scripts/bench/bench_model.py --multicast
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.collective import Collective  # noqa: E402
from lookup_tables.table import Shape  # noqa: E402
from probes.files.read import read_topology  # noqa: E402
from tuccl.measuring.calibration.fit import fit_constants  # noqa: E402
from tuccl.measuring.calibration.observations import Observation, tabulate  # noqa: E402
from tuccl.measuring.calibration.sources import from_record  # noqa: E402
from tuccl.measuring.records.grid_csv import read_grid_csv  # noqa: E402
from tuccl.measuring.records.record import Record  # noqa: E402
from tuccl.models.figures import (  # noqa: E402
    Fabric,
    Generation,
    MachineFigures,
    figures_of,
    machine_figures,
)
from tuccl.models.model_constants import ModelConstants, ProtocolCosts  # noqa: E402
from tuccl.models.nccl_choice import nccl_choice  # noqa: E402
from tuccl.models.nccl_model import builtin_time_us  # noqa: E402
from tuccl.search.trials.config import STOCK, Config, Task  # noqa: E402

SHARED = ROOT.parent / "shared" / "data"
GRID = SHARED / "replay" / "h200x4_nvlink_nccl2.28.9.csv"
TOPOLOGY = SHARED / "replay" / "h200x4_topo.xml"
CURVES = SHARED / "nccl_tests" / "curves.csv"
TENTH = 10

START = ModelConstants(
    ll=ProtocolCosts(5.0, 0.5, 0.5, 1.0, 20.0, 1000.0, 5.0, 0.5),
    ll128=ProtocolCosts(10.0, 2.0, 1.0, 1.0, 20.0, 1.0, 10.0, 0.8),
    simple=ProtocolCosts(15.0, 3.0, 3.0, 2.0, 40.0, 256.0, 20.0, 0.8),
    pci_hop_share=1.5,
    network_hop_us=5.0,
    network_latencies=3.0,
    network_efficiency=1.0,
    launch_us=5.0,
)
"""Round initial values of the fit, which owe nothing to the data left out."""
NVLINK = Fabric.NVLINK
VOLTA, AMPERE, HOPPER = Generation.VOLTA, Generation.AMPERE, Generation.HOPPER


@dataclass(frozen=True)
class Machine:
    """A machine of curves.csv with the figures of its data sheet."""

    label: str
    name: str
    """Name in curves.csv."""
    figures: MachineFigures
    launches: int
    """GPUs per process according to the header of the output; 1 without a header."""
    wanted: bool = True
    """Whether the machine is among those left out in turn."""


MACHINES = (
    Machine("A100 x8", "a100-sxm4-40gb-x8",
            figures_of(Shape(8, 1, 8), NVLINK, AMPERE, 300.0), 8),
    Machine("DGX-A100 2x8, 8 x HDR", "dgxa100-2node-hdr200x8",
            figures_of(Shape(16, 2, 8), NVLINK, AMPERE, 300.0, 8, 24.0, 2.0), 1),
    Machine("p4de 2x8, 4 x EFA 100G", "aws-p4de-2node",
            figures_of(Shape(16, 2, 8), NVLINK, AMPERE, 300.0, 4, 12.5, 20.0), 1),
    Machine("H100 2x8, 16 x RoCE 200G", "oci-h100-2node",
            figures_of(Shape(16, 2, 8), NVLINK, HOPPER, 450.0, 16, 25.0, 3.0), 1),
    Machine("V100 x8, DGX-1", "v100-sxm2-32gb-x8",
            figures_of(Shape(8, 1, 8), NVLINK, VOLTA, 150.0), 8),
    Machine("H100 2x8, 8 x 200G TCPXO", "gcp-a3mega-2node",
            figures_of(Shape(16, 2, 8), NVLINK, HOPPER, 450.0, 8, 25.0, 15.0), 1, wanted=False),
    Machine("GH200 x4", "alps-gh200-base-ofi1.13",
            figures_of(Shape(4, 1, 4), NVLINK, HOPPER, 450.0), 1, wanted=False),
    Machine("GH200 2x4, Slingshot", "alps-gh200-base-ofi1.13",
            figures_of(Shape(8, 2, 4), NVLINK, HOPPER, 450.0, 4, 25.0, 2.0), 1, wanted=False),
    Machine("H100 x4", "wayne-nvswitch-4of8",
            figures_of(Shape(4, 1, 4), NVLINK, HOPPER, 450.0), 4, wanted=False),
)  # fmt: skip


def _hgx(gpus: int, nodes: int = 1, nics: int = 0, nic_gb_per_s: float = 0.0) -> MachineFigures:
    """H100 behind NVSwitches with multicast; NICs answer in 3 us."""
    shape = Shape(gpus, nodes, gpus // nodes)
    return figures_of(
        shape, NVLINK, HOPPER, 450.0, nics, nic_gb_per_s, 3.0 if nics else 0.0, multicasts=True
    )


FORCED = (
    ("NVLS, 2 H100", "wayne-nvswitch-x2-NVLS", "nvls", _hgx(2)),
    ("NVLS, 6 H100", "wayne-nvswitch-x6-NVLS", "nvls", _hgx(6)),
    ("ring, 6 H100", "wayne-nvswitch-x6-Ring", "ring", _hgx(6)),
    ("stock, 2 H100", "wayne-nvswitch-x2-auto", "", _hgx(2)),
    ("stock, 6 H100", "wayne-nvswitch-x6-auto", "", _hgx(6)),
    ("stock, 2 x 8 H100, 8 x 400 Gbit/s", "oci-h100-2node", "", _hgx(16, 2, 8, 50.0)),
)
"""Curves with what ran, its name in curves.csv, the algorithm that was forced, the machine. NCCL
makes one NIC of the two ports of 200 Gbit/s of a card (NCCL_IB_MERGE_NICS)."""
PUBLISHED_BUSBW = (
    *(("ring", gpus, 367.5) for gpus in (4, 6, 8)),
    *(("nvls", *pair) for pair in ((4, 370.0), (5, 420.0), (6, 440.0), (7, 460.0), (8, 480.0))),
)
"""Algorithm, GPUs of a node of H100 SXM, bus bandwidth in GB/s of all_reduce of 4 GB (NVIDIA/nccl
issue 1455; ring: "about 365-370")."""


KEY_COLUMNS = {
    "operation": "{}",
    "size_bytes": "{}",
    "configurations": "{}",
    "median_error": "{:.1%}",
    "rank_correlation": "{:.3f}",
    # Whether the configuration with the least median is in the model's best tenth, and the same by
    # launch: configurations that give the same launch count as one.
    "winner_in_tenth": "{}",
    "launch_in_tenth": "{}",
    # Slowdown of the model's first configuration against the winner.
    "regret": "{:.1%}",
}
"""Accuracy of predictions for a size left out, for one operation, and how it is printed."""


def main() -> None:
    """Fit, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--multicast", action="store_true", help="compare NVLS with curves alone")
    if parser.parse_args().multicast:
        print_multicast(CURVES)
        return
    record = read_grid_csv(GRID, read_topology(TOPOLOGY))
    grid = from_record(record, record.topology).observations
    keys = leave_one_size_out(record, grid)
    machines = leave_one_machine_out(grid, curves(CURVES))
    everything = [*grid, *(seen for part in curves(CURVES) for seen in part)]
    constants = fit_constants(everything, START)
    print_keys(keys)
    print_machines(machines)
    print(f"fitted to all: {constants.constants}")


def leave_one_size_out(record: Record, grid: Sequence[Observation]) -> pd.DataFrame:
    """Figures of every key of a grid, predicted with constants fitted to the other sizes."""
    machine = machine_figures(record.topology)
    found = []
    for size_bytes in sorted({task.size_bytes for task in record.tasks}):
        fit = fit_constants([seen for seen in grid if seen.size_bytes != size_bytes], START)
        found += [
            _key_figures(record, task, machine, fit.constants)
            for task in record.tasks
            if task.size_bytes == size_bytes
        ]
    return pd.DataFrame(found, columns=list(KEY_COLUMNS))


def curves(path: Path) -> list[list[Observation]]:
    """Medians of stock NCCL out of place per machine, operation and size, as `MACHINES` stand."""
    frame = pd.read_csv(path)
    frame = frame[(frame["inplace"] == 0) & (frame["op"] != "alltoall")]
    by_machine = []
    for machine in MACHINES:
        part = frame[
            (frame["machine"] == machine.name) & (frame["nodes"] == machine.figures.shape.nodes)
        ]
        medians = part.groupby(["op", "size_bytes"], as_index=False)["time_us"].median()
        columns = (medians[name] for name in ("op", "size_bytes", "time_us"))
        by_machine.append(
            [
                Observation(
                    machine.label, machine.figures, Collective.named(op), int(size_bytes), STOCK,
                    float(time_us), machine.launches,
                )
                for op, size_bytes, time_us in zip(*columns, strict=True)
            ]
        )  # fmt: skip
    return by_machine


def leave_one_machine_out(
    grid: Sequence[Observation], by_machine: Sequence[Sequence[Observation]]
) -> pd.DataFrame:
    """Errors of all points, with constants fitted to the grid and the other machines.

    Returns:
        A row per point: `machine`, `wanted` as in `Machine`, `error` as a share of the time.
    """
    found = []
    for machine, held_out in zip(MACHINES, by_machine, strict=True):
        others = [seen for curve in by_machine if curve is not held_out for seen in curve]
        table = tabulate(held_out)
        predicted = table.predicted_us(fit_constants([*grid, *others], START).constants)
        errors = np.abs(predicted / table.times_us - 1.0)
        place = {"machine": machine.label, "wanted": machine.wanted}
        found.append(pd.DataFrame(place | {"error": errors}))
    return pd.concat(found, ignore_index=True)


def _key_figures(
    record: Record, task: Task, machine: MachineFigures, constants: ModelConstants
) -> tuple[object, ...]:
    """One key: all configurations of the grid are ranked, those with a time are compared."""
    configs = [config for config in record.configs(task) if config != STOCK]
    table = tabulate(
        [Observation("key", machine, task.operation, task.size_bytes, c, 1.0) for c in configs]
    )
    frame = pd.DataFrame({"config": configs, "modelled": table.predicted_us(constants)})
    frame["measured"] = [_measured_us(record, task, config) for config in configs]
    launched = [nccl_choice(task.operation, task.size_bytes, c, machine) for c in configs]
    frame["launch"] = pd.Series(launched, dtype=object)
    frame = frame.sort_values("modelled", kind="stable").reset_index(drop=True)
    timed = frame.dropna()
    winner = int(timed.index[int(timed["measured"].argmin())])
    launches = frame.groupby("launch", sort=False)["measured"].median()
    best_launches = set(launches.index[: max(1, len(launches) // TENTH)])
    ranks = timed[["modelled", "measured"]].rank()
    errors = (timed["modelled"] / timed["measured"] - 1.0).abs()
    return (
        task.operation.value,
        task.size_bytes,
        len(frame),
        errors.median(),
        ranks["modelled"].corr(ranks["measured"]),
        winner < len(frame) // TENTH,
        launches.idxmin() in best_launches,
        timed["measured"].iloc[0] / timed["measured"].min() - 1.0,
    )


def _measured_us(record: Record, task: Task, config: Config) -> float:
    row = record.row(task, config)
    return float(np.median(row.samples_us)) if row is not None and row.samples_us else float("nan")


def print_keys(keys: pd.DataFrame) -> None:
    """Print a row for each key, and what they have in common."""
    formatters = {name: form.format for name, form in KEY_COLUMNS.items()}
    rows = keys.sort_values(["operation", "size_bytes"])
    print(rows.to_string(index=False, formatters=formatters))
    error, correlation = keys[["median_error", "rank_correlation"]].median()
    winners, launches = keys[["winner_in_tenth", "launch_in_tenth"]].sum()
    print(
        f"{len(keys)} keys: median error {error:.1%}, rank correlation {correlation:.3f}, winner "
        f"in the best tenth {winners} times, by launch {launches} times\n"
    )


def print_machines(errors: pd.DataFrame) -> None:
    """Print a row for each machine left out, and one for those that are wanted together."""
    by_machine = errors.groupby("machine", sort=False)["error"]
    figures = {"points": by_machine.size(), "median error": by_machine.median()}
    rows = pd.DataFrame(figures | {"90 % below": by_machine.quantile(0.9)})
    print(rows.to_string(float_format="{:.1%}".format))
    wanted = errors["error"][errors["wanted"]]
    print(f"the first five together: {len(wanted)} points, {wanted.median():.1%}\n")


def print_multicast(path: Path) -> None:
    """Print predictions of NVLS, of its trees and of NCCL's choice beside published figures."""
    frame = pd.read_csv(path)
    rows = []
    for label, name, algorithm, machine in FORCED:
        part = frame[(frame["machine"] == name) & (frame["inplace"] == 0)]
        config = Config(algorithm, "Simple") if algorithm else STOCK
        for size_bytes, measured_us in zip(part["size_bytes"], part["time_us"], strict=True):
            rows.append((label, *_predicted(machine, int(size_bytes), config), measured_us))
    for algorithm, gpus, gb_per_s in PUBLISHED_BUSBW:
        size_bytes = 4 << 30
        measured_us = size_bytes * 2 * (gpus - 1) / gpus / (1e3 * gb_per_s)
        predicted = _predicted(_hgx(gpus), size_bytes, Config(algorithm, "Simple"))
        rows.append((f"{algorithm}, {gpus} H100, nccl#1455", *predicted, measured_us))
    table = pd.DataFrame(rows, columns=["what", "size", "modelled runs", "modelled", "measured"])
    table["error"] = table["modelled"] / table["measured"] - 1.0
    form = {"size": "{:,}".format, "error": "{:+.1%}".format}
    print(table.to_string(index=False, formatters=form, float_format="{:.0f}".format))
    errors = table["error"].abs()
    print(f"median error {errors.median():.1%}, largest {errors.max():.1%}")
    for ranks in (4, 6, 8):
        found = [
            (1 << power, nccl_choice(Collective.ALL_REDUCE, 1 << power, STOCK, _hgx(ranks)))
            for power in range(10, 34)
        ]
        first = next((size for size, choice in found if choice.algorithm == "nvls"), None)
        print(f"stock NCCL on {ranks} GPUs takes NVLS from {first} bytes")


def _predicted(machine: MachineFigures, size_bytes: int, config: Config) -> tuple[int, str, float]:
    """Return the size, the algorithm that runs and its time in us."""
    choice = nccl_choice(Collective.ALL_REDUCE, size_bytes, config, machine)
    time_us = builtin_time_us(Collective.ALL_REDUCE, size_bytes, choice, machine)
    return size_bytes, choice.algorithm.value, time_us


if __name__ == "__main__":
    main()
