"""A rank as torchrun or srun starts it: rank 0 runs all checks of `Places`, the others follow.

    RANK=0 WORLD_SIZE=3 python -m tests.tuccl.crew.meeting_job FOLDER [EXIT_CODE [stops]]

The outcome of each check is written as JSON. With an exit code rank 1 is stopped instead, once the
leader is done, or stops once it has been dismissed.
"""

import json
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path

from tests.tuccl.crew.places_conformance import CHECKS
from tuccl.crew import ranks
from tuccl.crew.places import dismiss
from tuccl.crew.ranks import RankPlaces, run_ranks


def stop(own: RankPlaces | None) -> int:
    assert own is not None
    vars(ranks)["dismiss"] = partial(dismiss, patience_s=1.0)
    vars(ranks)["END_S"] = 1.0
    if not STOPS:
        os.kill(int((FOLDER.parent / "pid").read_text()), signal.SIGSTOP)
    return int(sys.argv[2])


def lead(own: RankPlaces | None) -> int:
    outcomes = {}
    for name, check in CHECKS.items():
        outcomes[name] = "alone" if own is None else ""
        try:
            if own is not None:
                check(own)
        except Exception:  # noqa: BLE001 - the test shows it
            outcomes[name] = traceback.format_exc()
    sys.stdout.write(json.dumps(outcomes))
    return 7


FOLDER, STOPS = Path(sys.argv[1]), sys.argv[3:] == ["stops"]
if os.environ["RANK"] == "1":
    (FOLDER.parent / "pid").write_text(str(os.getpid()))
code = run_ranks(stop if sys.argv[2:] else lead, meeting=FOLDER)
if STOPS and os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
sys.exit(code)
