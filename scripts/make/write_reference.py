"""Write the reference that is made from the code: pages of Markdown, and JSON schemas.

    python scripts/make/write_reference.py [DIRECTORY]

The pages are commands with their options, errors, the Python interface, the members of JSON
documents, and the variables of NCCL that a run varies. scripts/make/build_site.sh puts them into
the site.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import error_reference
import json_reference
import python_reference
import typer
import variables_reference
from typer.cli import get_docs_for_click

from tuccl.cli.app import app

DEFAULT = Path(__file__).resolve().parents[2] / "build" / "reference"
TITLES = {
    "all-commands.md": "All commands and options",
    "errors.md": "Exit codes and errors",
    "python-interface.md": "The Python interface",
    "json-members.md": "Members of the JSON documents",
    "nccl-variables.md": "NCCL variables that your cluster has",
}
"""The pages by the names of their files."""


def commands_page() -> str:
    """The page of all commands and options, as `tuccl COMMAND --help` shows them."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("tuccl", [], resilient_parsing=True)
    text = str(get_docs_for_click(obj=command, ctx=context, name="tuccl"))
    return text.replace("# `tuccl`", f"# {TITLES['all-commands.md']}", 1)


def reference_files() -> dict[str, str]:
    """The text of each page and schema by the name of its file."""
    pages = {
        "all-commands.md": commands_page(),
        "errors.md": error_reference.page(),
        "python-interface.md": python_reference.page(),
        "json-members.md": json_reference.page(),
        "nccl-variables.md": variables_reference.page(),
    }
    schemas = json_reference.schema_texts()
    return pages | {f"schemas/{name}.schema.json": text for name, text in schemas.items()}


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT)
    directory = parser.parse_args().directory
    (directory / "schemas").mkdir(parents=True, exist_ok=True)
    for name, text in reference_files().items():
        (directory / name).write_text(text, encoding="utf-8")
        print(directory / name)


if __name__ == "__main__":
    main()
