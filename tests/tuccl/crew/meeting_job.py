"""A rank as torchrun or srun starts it: rank 0 runs all checks of `Places`, the others follow.

    RANK=0 WORLD_SIZE=3 python -m tests.tuccl.crew.meeting_job FOLDER

The outcome of each check is written as JSON.
"""

import json
import sys
import traceback
from pathlib import Path

from tests.tuccl.crew.places_conformance import CHECKS
from tuccl.crew.ranks import RankPlaces, run_ranks


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


sys.exit(run_ranks(lead, meeting=Path(sys.argv[1])))
