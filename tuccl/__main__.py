"""The start of the `tuccl` command, and of `python -m tuccl`.

Loading the command line takes a tenth of a second, in which Ctrl-C would show a traceback.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Load the command line, and do what it says."""
    try:
        from tuccl.cli import main as run  # noqa: PLC0415 - here it can be interrupted
    except KeyboardInterrupt:
        sys.stderr.write("tuccl: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
