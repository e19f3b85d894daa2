"""List the tests that `scripts/test.sh --quick` leaves out, by their durations in a whole run.

    scripts/test.sh --durations=0 | tee log
    python scripts/make/list_long_tests.py log > tests/long_tests.txt

A test is long from a quarter of a second on. A file with a fixture that takes that long is long as
a whole, because any test may be the first to use it. A test counts with its slowest parameters.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

LONG_S = 0.25
LINE = re.compile(r"^([\d.]+)s (call|setup|teardown) +(\S+?\.py)::(\w+)")


def long_tests(log: Iterable[str]) -> list[str]:
    """Files, and tests of other files, in their order; from pytest's list of durations."""
    found: set[str] = set()
    for seconds, phase, file, test in filter(None, (_parsed(line) for line in log)):
        if seconds >= LONG_S:
            found.add(f"{file}::{test}" if phase == "call" else file)
    return sorted(name for name in found if "::" not in name or name.split("::")[0] not in found)


def _parsed(line: str) -> tuple[float, str, str, str] | None:
    match = LINE.match(line)
    return (float(match[1]), match[2], match[3], match[4]) if match else None


def main() -> int:
    """Print the list; return 1 if the log has no durations."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    found = long_tests(lines)
    if not found:
        print(f"{sys.argv[1]} has no durations: run with --durations=0", file=sys.stderr)
        return 1
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
