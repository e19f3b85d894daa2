"""The start of the `tuccl` command, and of `python -m tuccl`.

Loading the command line takes a tenth of a second, in which Ctrl-C would show a traceback.
"""

from __future__ import annotations

import gc
import sys

from tuccl import foreign_package
from tuccl.crew.interrupts import interrupts_kept, tell_stopped
from tuccl.errors import ExitCode, exit_code_of

NEW_OBJECTS = 100_000
"""Objects between collections: Python's own 700 take 9 % of the time of `tuccl init`."""


def main() -> None:
    """Load the command line, and do what it says."""
    gc.set_threshold(NEW_OBJECTS)
    if foreign := foreign_package():
        print(f"tuccl: {foreign}", file=sys.stderr)  # noqa: T201 - no view can be imported
        sys.exit(ExitCode.ENVIRONMENT)
    try:
        with interrupts_kept(ends_process=True):
            from tuccl.cli.app import main as run  # noqa: PLC0415 - here it can be interrupted

            run()
    except KeyboardInterrupt as stop:
        code = exit_code_of(stop)
        tell_stopped(code)
        sys.exit(code)


if __name__ == "__main__":
    main()
