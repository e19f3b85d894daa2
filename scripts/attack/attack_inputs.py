"""Run commands on damaged files of every kind that the command line reads.

TuCCL itself writes the valid files, and each must be accepted before it is damaged. A command must
then end with a documented exit code and one line of error at most, within limits of time and memory
that do not depend on the file.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attack_children import Ended, preload, run_command
from attack_findings import Findings
from attack_input_files import good_files
from attack_mutations import TEXT, Mutation, flip, json_structure, parquet_structure

from lookup_tables.bundle_layout import HEADER, bundle_crc

_WORKSPACE = "tuccl-workspace"
_MOST_KIB = 1 << 20
_LOOK_ONLY = ("probe", "--no-p2p", "--no-network")
_TUNE = ("tune", "--operations", "all_gather", "--min-size", "64K", "--max-size", "64K")
_ON_H200 = ("--topology", "shipped:h200-4gpu")
_JSON: tuple[Mutation, ...] = (*TEXT, *[json_structure] * 6)


def sealed_flip(data: bytes, rng: random.Random) -> bytes:
    """A bundle with changed bytes and a correct checksum."""
    changed = bytearray(flip(data, rng))
    if len(changed) < HEADER.size or rng.random() < 0.2:
        return bytes(changed)
    header = list(HEADER.unpack_from(changed))
    header[2] = bundle_crc(bytes(changed))
    HEADER.pack_into(changed, 0, *header)
    return bytes(changed)


@dataclass(frozen=True)
class Target:
    """A file that is damaged, and a command that reads it."""

    file: str
    """Path in the folder of valid files; `RUN/` stands for the run in the workspace."""
    words: tuple[str, ...]
    """Arguments of the command; FILE stands for the file."""
    mutations: tuple[Mutation, ...] = TEXT


TARGETS = (
    Target("topology.xml", ("topology", "show", "FILE")),
    Target("topology.xml", ("topology", "import", "FILE")),
    Target("topology.json", ("topology", "show", "FILE", "--json"), _JSON),
    Target("topology.json", (*_TUNE, "--topology", "FILE", "--backend", "simulated"), _JSON),
    Target("topology.json", ("topology", "draw", "FILE"), _JSON),
    Target("matrix.txt", ("topology", "show", "FILE")),
    Target("lspci.txt", ("topology", "show", "FILE")),
    Target("hwloc.xml", ("topology", "show", "FILE")),
    Target("record.parquet", (*_TUNE, "--records", "FILE"), (*TEXT, *[parquet_structure] * 9)),
    Target("grid.csv", (*_TUNE, "--records", "FILE")),
    Target("grid_default.csv", (*_TUNE, "--records", "grid.csv")),
    Target("grid.csv", ("calibrate", "FILE", *_ON_H200, "-o", "model-now.json")),
    Target("nccl_tests.txt", ("calibrate", "FILE", *_ON_H200, "-o", "model-now.json")),
    Target("model.json", (*_TUNE, *_ON_H200, "--model", "FILE"), _JSON),
    Target("tuner.conf", (*_TUNE, *_ON_H200, "--baseline", "FILE")),
    Target("verdicts.jsonl", ("report", "--verdicts", "FILE", "--output", "now.html"), _JSON),
    Target("schedule.xml", ("verify", "FILE")),
    Target("schedule.xml", ("verify", "FILE", "--json")),
    Target(
        "sketch.json",
        ("synthesize", *_ON_H200, "--operation", "all_gather", "--size", "64K",
         "--time-limit", "1s", "--jobs", "1", "--sketch", "FILE"),
        _JSON,
    ),
    Target("ibnetdiscover.txt", (*_LOOK_ONLY, "--ibnetdiscover", "FILE")),
    Target("slurm.txt", (*_LOOK_ONLY, "--slurm-topology", "FILE")),
    Target("racks.txt", (*_LOOK_ONLY, "--rack-map", "FILE")),
    Target("traffic.csv", (*_LOOK_ONLY, "--traffic-log", "FILE")),
    Target(f"{_WORKSPACE}/current.json", ("table",), _JSON),
    Target("RUN/run.json", ("table",), _JSON),
    Target("RUN/run.json", ("retune",), _JSON),
    Target("RUN/report.json", ("table", "--json"), _JSON),
    Target("RUN/report.json", ("explain", "all_gather", "64K"), _JSON),
    Target("RUN/topology.json", ("retune",), _JSON),
    Target("RUN/measurements.jsonl", (*_TUNE, *_ON_H200, "--resume")),
    Target("RUN/table.parquet", ("table",), (*TEXT, *[parquet_structure] * 9)),
    Target("RUN/table.parquet", ("ship", "shipped"), (*TEXT, *[parquet_structure] * 9)),
    Target("RUN/bundle.tuccl", ("ship", "shipped"), (*TEXT, *[sealed_flip] * 9)),
    Target("shipped/tuccl-manifest.json", ("ship", "shipped"), _JSON),
    Target("shipped/tuccl.env", ("ship", "shipped")),
    Target("shipped/tuccl-manifest.json", ("show", "shipped"), _JSON),
    Target("shipped/tuccl.env", ("show", "shipped", "--json")),
    Target("shipped/table.parquet", ("doctor", "shipped"), (*TEXT, *[parquet_structure] * 9)),
    Target("shipped/table.parquet", ("show", "shipped"), (*TEXT, *[parquet_structure] * 9)),
)  # fmt: skip


def attack(
    seconds: float,
    seed: int,
    folder: Path,
    first: int = 0,
    targets: tuple[Target, ...] = TARGETS,
) -> dict[str, int]:
    """Damage files and run commands on them; outcomes are exit codes."""
    os.environ["TUCCL_PROGRESS_EVERY"] = "1h"
    findings = Findings("inputs", seed, folder)
    with tempfile.TemporaryDirectory(prefix="tuccl-attack-") as place:
        good = Path(place) / "good"
        good_files(good, {target.file for target in targets})
        for target in targets:
            ended = _try(target, good, Path(place) / "try", lambda data: data)
            preload(ended)
            if ended.fault or ended.code not in {0, 1}:
                told = ended.stderr.strip()[-300:]
                findings.failed(-1, f"a good {target.file} ends with {ended.code}: {told}")
        for attempt, rng in findings.attempts(seconds, first):
            _attempt(attempt, rng, targets, good, findings)
    return dict(findings.counts)


def _attempt(
    attempt: int, rng: random.Random, targets: tuple[Target, ...], good: Path, findings: Findings
) -> None:
    target = targets[attempt % len(targets)]

    def damaged(data: bytes) -> bytes:
        chosen = rng.choices(target.mutations, k=rng.choice((1, 1, 1, 2, 3)))
        # Structural mutations first, while the input still parses.
        for mutation in sorted(chosen, key=lambda mutation: mutation in TEXT):
            data = mutation(data, rng)
        return data

    tried = good.parent / "try"
    ended = _try(target, good, tried, damaged)
    findings.counts["timed out" if ended.timed_out else f"exit code {ended.code}"] += 1
    why = ended.fault
    if not why and ended.most_kib > _MOST_KIB:
        why = f"{ended.most_kib >> 10} MiB of memory"
    if why:
        (tried / "stderr.txt").write_text(ended.stderr)
        (tried / "command.txt").write_text(f"tuccl {' '.join(target.words)}\n")
        top = target.file.split("/")[0]
        damaged_file = tried / (_WORKSPACE if top == "RUN" else top)
        kept = (tried / "stderr.txt", tried / "command.txt", damaged_file)
        findings.failed(attempt, f"{target.file}: tuccl {target.words[0]}: {why}", *kept)


def _try(target: Target, good: Path, tried: Path, change: Callable[[bytes], bytes]) -> Ended:
    shutil.rmtree(tried, ignore_errors=True)
    tried.mkdir()
    whole = ("RUN/", _WORKSPACE, "shipped/")
    if target.file.startswith(whole) or "--resume" in target.words:
        shutil.copytree(good / _WORKSPACE, tried / _WORKSPACE, symlinks=True)
        shutil.copytree(good / "shipped", tried / "shipped", symlinks=True)
    elif target.file.startswith("grid"):
        for beside in good.glob("grid*"):
            shutil.copy(beside, tried)
    name = target.file
    if name.startswith("RUN/"):
        run = next((good / _WORKSPACE / "runs").iterdir())
        name = f"{_WORKSPACE}/runs/{run.name}/{name.removeprefix('RUN/')}"
    file = tried / name
    file.write_bytes(change((good / name).read_bytes()))
    words = [name if word == "FILE" else word for word in target.words]
    return run_command(words, tried)
