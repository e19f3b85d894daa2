"""Compare predictions of NCCL's model with measured times to which it was not fitted.

Two tables. The first leaves one size of the recorded grid of four H200 out, fits the constants to
the other sizes and predicts that one: error of the time, rank correlation of the configurations of
a key, whether the model's best tenth holds the true winner. The second leaves one machine out,
fits to the grid and all other machines, and predicts stock NCCL's times there. Last come the
constants fitted to all data, which `tuccl.models.model_constants.SHIPPED` rounds.

    python scripts/bench/bench_model.py     # needs the shared data, a minute
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


@dataclass(frozen=True)
class KeyFigures:
    """Accuracy of predictions for a size left out, for one operation."""

    operation: str
    size_bytes: int
    configurations: int
    median_error: float
    rank_correlation: float
    winner_in_tenth: bool
    """Whether the configuration with the least median is in the model's best tenth."""
    launch_in_tenth: bool
    """The same by launch: configurations that give the same launch count as one."""
    regret: float
    """Slowdown of the model's first configuration against the winner."""


@dataclass(frozen=True)
class MachineError:
    """Accuracy of predictions for a machine to which the constants were not fitted."""

    label: str
    wanted: bool
    points: int
    median_error: float
    ninetieth_error: float
    errors: tuple[float, ...]


def main() -> None:
    """Fit, predict, print."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    record = read_grid_csv(GRID, read_topology(TOPOLOGY))
    grid = from_record(record, record.topology).observations
    keys = leave_one_size_out(record, grid)
    machines = leave_one_machine_out(grid, curves(CURVES))
    everything = [*grid, *(seen for part in curves(CURVES) for seen in part)]
    constants = fit_constants(everything, START)
    print(_keys_text(keys))
    print(_machines_text(machines))
    print(f"fitted to all: {constants.constants}")


def leave_one_size_out(record: Record, grid: Sequence[Observation]) -> list[KeyFigures]:
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
    return found


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
) -> list[MachineError]:
    """Errors on every machine with constants fitted to the grid and the other machines."""
    found = []
    for machine, held_out in zip(MACHINES, by_machine, strict=True):
        others = [seen for curve in by_machine if curve is not held_out for seen in curve]
        table = tabulate(held_out)
        predicted = table.predicted_us(fit_constants([*grid, *others], START).constants)
        errors = np.abs(predicted / table.times_us - 1.0)
        median, ninetieth = (float(value) for value in np.quantile(errors, [0.5, 0.9]))
        found.append(
            MachineError(
                machine.label, machine.wanted, len(errors), median, ninetieth,
                tuple(errors.tolist()),
            )
        )  # fmt: skip
    return found


def _key_figures(
    record: Record, task: Task, machine: MachineFigures, constants: ModelConstants
) -> KeyFigures:
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
    return KeyFigures(
        operation=task.operation.value,
        size_bytes=task.size_bytes,
        configurations=len(frame),
        median_error=float(errors.median()),
        rank_correlation=float(ranks["modelled"].corr(ranks["measured"])),
        winner_in_tenth=winner < len(frame) // TENTH,
        launch_in_tenth=launches.idxmin() in best_launches,
        regret=float(timed["measured"].iloc[0] / timed["measured"].min() - 1.0),
    )


def _measured_us(record: Record, task: Task, config: Config) -> float:
    row = record.row(task, config)
    return float(np.median(row.samples_us)) if row is not None and row.samples_us else float("nan")


def _keys_text(keys: Sequence[KeyFigures]) -> str:
    lines = [
        "operation      size       configs  error  rank corr.  winner in tenth  launch  regret"
    ]
    lines += [
        f"{key.operation:14} {key.size_bytes:10} {key.configurations:8} {key.median_error:6.1%} "
        f"{key.rank_correlation:11.3f}  {key.winner_in_tenth!s:>15}  {key.launch_in_tenth!s:>6} "
        f"{key.regret:7.1%}"
        for key in sorted(keys, key=lambda key: (key.operation, key.size_bytes))
    ]
    correlation = float(np.median([key.rank_correlation for key in keys]))
    winners = sum(key.winner_in_tenth for key in keys)
    launches = sum(key.launch_in_tenth for key in keys)
    error = float(np.median([key.median_error for key in keys]))
    lines.append(
        f"{len(keys)} keys: median error {error:.1%}, rank correlation {correlation:.3f}, winner "
        f"in the best tenth {winners} times, by launch {launches} times"
    )
    return "\n".join(lines) + "\n"


def _machines_text(machines: Sequence[MachineError]) -> str:
    lines = ["machine left out            points  median error  90 % below"]
    lines += [
        f"{machine.label:27} {machine.points:6} {machine.median_error:13.1%} "
        f"{machine.ninetieth_error:11.1%}"
        for machine in machines
    ]
    wanted = [error for machine in machines if machine.wanted for error in machine.errors]
    lines.append(f"the first five together     {len(wanted):6} {float(np.median(wanted)):13.1%}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
