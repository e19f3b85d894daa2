"""Kill commands at any write or fill their disk, then check the files that they leave.

A command runs in a forked process that ends itself with SIGKILL before or after the n-th flush,
renaming or removal, or whose files have a limited size. Afterwards a reader must find the complete
old or new content, and the same command must succeed and leave the result of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attack_children import Ended, preload, run_command
from attack_findings import Findings

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import read_bundle
from tuccl.workspace.atomic_file import PARTIAL_PREFIX

_STEPS = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "link", "symlink", "truncate")
_SIZES = ("--operations", "all_gather", "--min-size", "64K", "--max-size", "64K")
_TUNE = ("tune", "--topology", "shipped:h200-4gpu", "--backend", "simulated", *_SIZES)
_OTHER = ("tune", "--topology", "shipped:h200-4gpu-measured", "--backend", "simulated", *_SIZES)
_TIMES = frozenset({"measured_at", "seconds", "started", "finished"})


@dataclass(frozen=True)
class Scenario:
    """A command that writes, the commands before it, and a reader of its output."""

    name: str
    before: tuple[tuple[str, ...], ...]
    """Commands that prepare the folder that it starts in."""
    words: tuple[str, ...]
    reader: Callable[[Path], str]
    """Returns a folder's content as text, equal for equal content; empty without content."""


def found_table(folder: Path) -> str:
    """The workspace's table as `tuccl table` prints it.

    Raises:
        ValueError: the reader failed.
    """
    ended = run_command(("table", "--json"), folder)
    if ended.fault:
        raise ValueError(f"tuccl table: {ended.fault}")
    if ended.code == 3 and "no finished run" in ended.stderr:
        return ""
    if ended.code:
        raise ValueError(f"tuccl table: exit code {ended.code}: {ended.stderr.strip()}")
    return json.dumps(_without_times(json.loads(ended.stdout)), sort_keys=True)


def found_shipped(folder: Path) -> str:
    """The `tuccl.env` that a job sources, after its bundle is checked.

    Raises:
        ValueError: The bundle that tuccl.env names is missing or has another checksum.
    """
    shipped = folder / "shipped"
    if not (shipped / "tuccl.env").exists():
        return ""
    text = (shipped / "tuccl.env").read_text()
    crc = text.partition("TUCCL_BUNDLE_CRC=")[2][:8]
    bundle = shipped / f"bundle-{crc}.tuccl"
    if not bundle.exists():
        raise ValueError(f"tuccl.env names {bundle.name}, which is missing")
    data = bundle.read_bytes()
    if f"{bundle_crc(data):08x}" != crc:
        raise ValueError(f"{bundle.name} has another sum")
    read_bundle(data, bundle.name)
    # tuccl.env names the folder that it was shipped to; this one may be a copy.
    return re.sub(rf"{re.escape(str(folder.parent))}/\w+", "", text)


SCENARIOS = (
    Scenario("first tune", (), _TUNE, found_table),
    Scenario("second tune", (_TUNE,), _OTHER, found_table),
    Scenario("retune", (_TUNE,), ("retune", *_OTHER[1:3]), found_table),
    Scenario("first ship", (_TUNE,), ("ship", "shipped"), found_shipped),
    Scenario(
        "second ship",
        (_TUNE, ("ship", "shipped"), _OTHER),
        ("ship", "shipped", "--force"),
        found_shipped,
    ),
    Scenario(
        "ship with forms",
        (_TUNE, ("ship", "shipped", "--to", "env,slurm,kubernetes"), _OTHER),
        ("ship", "shipped", "--force"),
        found_shipped,
    ),
)


def attack(
    seconds: float,
    seed: int,
    folder: Path,
    first: int = 0,
    scenarios: tuple[Scenario, ...] = SCENARIOS,
) -> dict[str, int]:
    """Disturb commands; outcomes are old and new content found."""
    os.environ["TUCCL_PROGRESS_EVERY"] = "1h"
    findings = Findings("kills", seed, folder)
    with tempfile.TemporaryDirectory(prefix="tuccl-attack-") as place:
        prepared: dict[str, _Prepared] = {}
        for number, rng in findings.attempts(seconds, first):
            scenario = scenarios[number % len(scenarios)]
            if scenario.name not in prepared:
                root = Path(place) / scenario.name.replace(" ", "-")
                prepared[scenario.name] = _prepare(scenario, root)
            _attempt(number, rng, prepared[scenario.name], findings)
    return dict(findings.counts)


@dataclass(frozen=True)
class _Prepared:
    scenario: Scenario
    before: Path
    """The folder that the command starts in."""
    steps: int
    """Flushes, renamings and removals of an undisturbed run."""
    old: str
    new: str
    largest_bytes: int
    """Size of the largest file that the command writes."""


def _prepare(scenario: Scenario, root: Path) -> _Prepared:
    before, after = root / "before", root / "after"
    before.mkdir(parents=True)
    for words in scenario.before:
        _must_work(run_command(words, before), words)
    shutil.copytree(before, after, symlinks=True)
    counted = root / "steps"
    _must_work(run_command(scenario.words, after, lambda: _count_steps(counted)), scenario.words)
    sizes = [path.stat().st_size for path in after.rglob("*") if path.is_file()]
    old, new = scenario.reader(before), scenario.reader(after)
    steps = counted.stat().st_size
    return _Prepared(scenario, before, steps, old, new, max(sizes))


def _must_work(ended: Ended, words: tuple[str, ...]) -> None:
    if ended.code:
        raise RuntimeError(f"tuccl {' '.join(words)}: exit code {ended.code}: {ended.stderr}")
    preload(ended)


def _attempt(number: int, rng: random.Random, prepared: _Prepared, findings: Findings) -> None:
    tried = prepared.before.parent / "try"
    shutil.rmtree(tried, ignore_errors=True)
    shutil.copytree(prepared.before, tried, symlinks=True)
    scenario = prepared.scenario
    if rng.random() < 0.75:
        step, after = rng.randrange(prepared.steps), rng.random() < 0.5
        how = f"killed {'after' if after else 'before'} step {step} of {prepared.steps}"
        ended = run_command(scenario.words, tried, lambda: _kill_at(step, after))
        faults = [] if ended.code in {-signal.SIGKILL, 0} else [f"ended with {ended.code}"]
    else:
        most = int(rng.uniform(0, 1.1) ** 2 * prepared.largest_bytes)
        how = f"no file above {most} bytes"
        ended = run_command(scenario.words, tried, lambda: _limit_files(most))
        faults = [ended.fault] if ended.fault else []
        if ended.code not in {0, 3}:
            faults.append(f"exit code {ended.code} on a full disk: {ended.stderr.strip()[-300:]}")
    faults += _after(tried, prepared, findings)
    if faults:
        (tried / "how.txt").write_text(f"{scenario.name}: {how}\n{ended.stderr}")
        findings.failed(number, f"{scenario.name}, {how}: {'; '.join(faults)}", tried)


def _after(tried: Path, prepared: _Prepared, findings: Findings) -> list[str]:
    """Faults of the files that a disturbed command left, and of the next run."""
    scenario = prepared.scenario
    try:
        found = scenario.reader(tried)
        if found not in {prepared.old, prepared.new}:
            return [f"a reader finds neither the old nor the new: {found[:200]}"]
        findings.counts["old found" if found == prepared.old else "new found"] += 1
        again = run_command(scenario.words, tried)
        if again.fault or again.code:
            told = again.stderr.strip()[-300:]
            return [f"the next run ends with {again.code} {again.fault}: {told}"]
        if scenario.reader(tried) != prepared.new:
            return ["the next run leaves something else than an undisturbed one"]
    except ValueError as error:
        return [str(error)]
    partial = [path.name for path in tried.rglob(f"{PARTIAL_PREFIX}*")]
    return [f"left over: {', '.join(partial)}"] if partial else []


def _without_times(value: Any) -> Any:
    """A document without times and paths, which differ between runs."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name not in _TIMES}
        return {name: _without_times(part) for name, part in kept.items()}
    if isinstance(value, list):
        return [_without_times(part) for part in value]
    return value if not isinstance(value, str) or "/" not in value else ""


def _count_steps(file: Path) -> None:
    """Append a byte to a file for each step."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    _around_steps(lambda: os.write(descriptor, b"."), lambda: None)


def _kill_at(step: int, after: bool) -> None:
    done = -1

    def before_it() -> None:
        nonlocal done
        done += 1
        if done == step and not after:
            os.kill(os.getpid(), signal.SIGKILL)

    def after_it() -> None:
        if done == step and after:
            os.kill(os.getpid(), signal.SIGKILL)

    _around_steps(before_it, after_it)


def _around_steps(before: Callable[[], object], after: Callable[[], object]) -> None:
    """Call these around every flush, renaming and removal of this process."""

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            before()
            result = call(*args, **options)
            after()
            return result

        return step

    for name in _STEPS:
        setattr(os, name, wrapped(getattr(os, name)))


def _limit_files(most_bytes: int) -> None:
    """Have writes beyond a file size fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
