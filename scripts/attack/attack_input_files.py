"""Write a valid file of every kind that the command line reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

from attack_children import preload, run_command

from probes.files.read import shipped_machines
from probes.network.campaign.idle_pairs import HEADER
from sketches.candidates import sketch_candidates
from sketches.sketch_json import sketch_to_json
from tests.probes.network.racks.test_ibnetdiscover import FABRIC
from tests.probes.nvidia.test_nvidia_smi_topo import TWO_SOCKETS
from tests.probes.pci.test_hwloc import MACHINE
from tests.probes.pci.test_lspci import GPU, ROOT_PORT, UPSTREAM
from tests.tuccl.cli.test_tune import as_csv
from tests.tuccl.measuring.records.small_record import machine
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tests.tuccl.reports.verdict_logs import verdict
from tuccl.measuring.records.record_file import write_record

_H200 = ("--topology", "shipped:h200-4gpu")
_MEASURED = "time  algbw  busbw #wrong"
_TUNING = ("--backend", "simulated", "--operations", "all_gather", "--min-size", "64K",
           "--max-size", "64K")  # fmt: skip


def good_files(folder: Path, wanted: Collection[str]) -> None:
    """Write the files to a new folder, those that need a command only if wanted.

    Raises:
        RuntimeError: A command that writes a file failed.
    """
    folder.mkdir(parents=True)
    shutil.copy(shipped_machines()["a100-8gpu-8nic"], folder / "topology.xml")
    shutil.copy(shipped_machines()["h200-4gpu-measured"], folder / "topology.json")
    texts = {
        "matrix.txt": TWO_SOCKETS,
        "lspci.txt": ROOT_PORT + UPSTREAM + GPU,
        "hwloc.xml": MACHINE,
        "nccl_tests.txt": _nccl_tests(),
        "ibnetdiscover.txt": FABRIC,
        "slurm.txt": "SwitchName=leaf1 Nodes=n[01-08]\nSwitchName=top Switches=leaf[1-2]\n",
        "racks.txt": "n[01-08,11] rack-a\nn09,rack-b\n",
        "traffic.csv": f"# tuccl traffic log 1\n{','.join(HEADER)}\nn1,mlx5_0,n2,mlx5_0,0.5\n",
        "tuner.conf": "# 1\nallreduce,0,9,tree,ll,8,-1,-1\nallgather,1,-1,ring,ll,12,1,4,1,0\n",
        "verdicts.jsonl": json.dumps(verdict(1, runs=1)) + "\n",
        "sketch.json": sketch_to_json(sketch_candidates(machine())[0]),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    write_record(folder / "record.parquet", tiny_grid())
    as_csv(tiny_grid(), folder / "grid.csv")
    (folder / "h200x4_topo.xml").rename(folder / "grid_topo.xml")
    synthesize = ("synthesize", *_H200, "--operation", "all_gather", "--size", "64K", "--jobs", "1",
                  "--time-limit", "1s", "-o")  # fmt: skip
    commands = {
        "tuccl-workspace RUN": ("tune", *_H200, *_TUNING),
        "shipped RUN": ("ship", "shipped"),
        "model.json": ("calibrate", "nccl_tests.txt", *_H200, "-o", "model.json"),
        "schedule.xml": (*synthesize, "schedule.xml"),
    }
    tops = {"RUN" if name.startswith("shipped") else name.split("/")[0] for name in wanted}
    for made, words in commands.items():
        if tops.isdisjoint(made.split()):
            continue
        ended = run_command(words, folder)
        if ended.code:
            why = ended.fault or ended.stderr.strip()[-500:]
            raise RuntimeError(f"tuccl {' '.join(words)}: {why}")
        preload(ended)


def _nccl_tests() -> str:
    """Output of nccl-tests of one process with four GPUs, at ten sizes, with plausible times."""
    head = "\n".join(
        [
            "# Collective test starting: all_reduce_perf",
            "# nThread 1 nGpus 4 minBytes 1024 maxBytes 268435456 step: 4(factor) graph: 0",
            *(f"#  Rank  {gpu} Group  0 Pid   10 on hosta device  {gpu} GPU" for gpu in range(4)),
            f"#  size  count  type  redop  root  {_MEASURED}  {_MEASURED}",
        ]
    )
    rows = []
    for step in range(10):
        size = 1024 << 2 * step
        time_us = round(20.0 + size / 1e5, 2)
        algbw = size / 1e3 / time_us
        cells = f"{time_us:.2f}  {algbw:.2f}  {1.5 * algbw:.2f}  0"
        rows.append(f"  {size}  {size // 4}  float  sum  -1  {cells}  {cells}")
    return "\n".join([head, *rows, "# Out of bounds values : 0 OK", ""])
