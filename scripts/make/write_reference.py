"""Write the pages of docs/reference that are made from the code.

    python scripts/make/write_reference.py [DIRECTORY]

Run it after a change of commands, options, errors, JSON documents or the Python interface; a test
holds the pages against the code.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import command_reference
import error_reference
import json_reference
import python_reference

from tuccl.workspace.atomic_file import write_atomically

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def reference_pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    return {
        "all-commands.md": command_reference.page(),
        "errors.md": error_reference.page(),
        "json-members.md": json_reference.page(),
        "python-interface.md": python_reference.page(),
    }


def main() -> None:
    """Write all pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", nargs="?", type=Path, default=REFERENCE)
    directory = parser.parse_args().directory
    for name, text in reference_pages().items():
        write_atomically(directory / name, text)
        print(directory / name)


if __name__ == "__main__":
    main()
