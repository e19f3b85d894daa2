"""Compile expert schedules for one node into FOLDER/<ranks>/<name>.program.

write_programs.py FOLDER [RANKS ...]

Also writes bundle.tuccl, with all of them for the executor to interpret, and runners.json, with
their content hashes by ranks and operation. Programs of the bundle name no pattern, so that no
pattern's kernel runs them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "check")]

from kernel_schedules import experts, stored, with_pattern  # noqa: E402

from lookup_tables.table import StoredSchedule  # noqa: E402
from synthesizer.ir.algorithm import Algorithm  # noqa: E402
from synthesizer.programs.layout import Pattern  # noqa: E402
from tuccl.schedules.executor_schedules import programs_bundle  # noqa: E402

_INTERPRETED = "i"
"""Suffix of the content hash of a program without its pattern."""


def interpreted(algorithm: Algorithm) -> StoredSchedule:
    """A schedule that no kernel runs."""
    schedule = stored(algorithm)
    program = with_pattern(schedule.program, Pattern.NONE)
    return StoredSchedule(schedule.content_hash + _INTERPRETED, schedule.name, "", program)


def write_bundle(folder: Path, algorithms: list[Algorithm]) -> None:
    """Write bundle.tuccl with all schedules, and runners.json with their hashes."""
    schedules: dict[str, StoredSchedule] = {}
    runners: dict[int, dict[str, list[str]]] = {}
    for algorithm in algorithms:
        schedule = interpreted(algorithm)
        if schedule.content_hash in schedules:
            continue
        schedules[schedule.content_hash] = schedule
        of_ranks = runners.setdefault(algorithm.ranks, {})
        of_ranks.setdefault(algorithm.collective.value, []).append(schedule.content_hash)
    (folder / "bundle.tuccl").write_bytes(programs_bundle(schedules.values()))
    (folder / "runners.json").write_text(json.dumps(runners, indent=1), encoding="utf-8")


def main(folder: Path, counts: list[int]) -> None:
    """Write the programs of each number of ranks."""
    algorithms: list[Algorithm] = []
    for ranks in counts:
        target = folder / str(ranks)
        target.mkdir(parents=True, exist_ok=True)
        for algorithm in experts(ranks):
            (target / f"{algorithm.name}.program").write_bytes(stored(algorithm).program)
            algorithms.append(algorithm)
    write_bundle(folder, algorithms)
    alone = len({algorithm.content_hash() for algorithm in algorithms})
    print(f"{len(algorithms)} programs in {folder}, {alone} of them different")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(ranks) for ranks in sys.argv[2:]] or [2, 3, 4])
