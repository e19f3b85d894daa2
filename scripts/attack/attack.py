"""Attack the files, ports and shared memory of TuCCL for a given time.

    python scripts/attack/attack.py --minutes 60 --seed 1
    python scripts/attack/attack.py --minutes 5 --seed 1 --part inputs --json attack.json

Parts: `bundles` mutates bundles and programs for the plugin's own loader under sanitizers;
`inputs` damages every kind of file that the command line reads; `kills` ends commands at every
write and fills their disk; `shm` fills and changes /dev/shm beside starting communicators;
`strangers` connects to the ports of measuring runs without authentication. The time is divided
evenly. A failure is printed as SEED/PART/NUMBER and its input stays in --folder; `--seed SEED
--part PART --first NUMBER` starts there. Exit code 1: something failed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Fixtures of the tests make the input files; they start jobs with modules of scripts/check.
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "check")]

Attack = Callable[[float, int, Path, int], dict[str, int]]
"""`attack` of each part's module: runs for some seconds, which include what it compiles, from a
seed; keeps the inputs of failures in a folder; begins with the attempt of a number. Returns the
attempts, the failures, and how often each other outcome came."""
PARTS = ("bundles", "inputs", "kills", "shm", "strangers")
TELL_EVERY_S = 20.0


def main() -> int:
    """Run the parts and print the outcomes."""
    given = _arguments()
    parts = given.part or [part for part in PARTS if importlib.util.find_spec(f"attack_{part}")]
    folder = given.folder or Path(tempfile.mkdtemp(prefix="tuccl-attack-"))
    seconds = given.minutes * 60 / len(parts)
    results = {}
    for part in parts:
        attack: Attack = importlib.import_module(f"attack_{part}").attack
        over = threading.Event()
        teller = threading.Thread(target=_tell, args=(part, seconds, folder / part, over))
        teller.start()
        try:
            results[part] = attack(seconds, given.seed, folder / part, given.first)
        finally:
            over.set()
            teller.join()
    print(table(results))
    failures = sum(counts["failures"] for counts in results.values())
    if failures:
        print(f"{failures} failures, with their inputs below {folder}")
    if given.json:
        told = {"seed": given.seed, "minutes": given.minutes, "parts": results}
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if failures else 0


def table(results: dict[str, dict[str, int]]) -> str:
    """A row per part: attempts, failures, and the other outcomes."""
    lines = [f"{'part':10} {'attempts':>10} {'failures':>9}  what came of them"]
    for part, counts in results.items():
        rest = {name: n for name, n in counts.items() if name not in {"attempts", "failures"}}
        ends = ", ".join(
            f"{n} {name}" for name, n in sorted(rest.items(), key=lambda item: -item[1])
        )
        lines.append(f"{part:10} {counts.get('attempts', 0):>10} {counts['failures']:>9}  {ends}")
    return "\n".join(lines)


def _tell(part: str, seconds: float, folder: Path, over: threading.Event) -> None:
    # os.write takes no lock that a forked process could inherit locked.
    start = time.monotonic()
    while not over.wait(TELL_EVERY_S):
        kept = len(list(folder.glob("failure-*")))
        passed = time.monotonic() - start
        text = f"attack: {part}: {passed:.0f} of {seconds:.0f} s, {kept} failures\n"
        os.write(2, text.encode())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="For all parts together.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", choices=PARTS, help="Repeatable; default: all.")
    parser.add_argument("--first", type=int, default=0, help="The first attempt of each part.")
    parser.add_argument("--folder", type=Path, help="Folder for the inputs of failures.")
    parser.add_argument("--json", type=Path, help="Also write the counts to this file.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
