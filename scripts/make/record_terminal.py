"""Draw a terminal with commands of the tutorial and their output, for the README.

    python scripts/make/record_terminal.py [FILE.svg]

The text is that of docs/tutorial/simulated.md, which the tests run. The picture fetches no font.
"""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from write_console_output import blocks_of

from tuccl.workspace.atomic_file import write_atomically

DOCS = Path(__file__).resolve().parents[2] / "docs"
TUTORIAL = DOCS / "tutorial" / "simulated.md"
PICTURE = DOCS / "pictures" / "terminal.svg"
SHOWN = ("tuccl init ", "tuccl ship ")
"""Beginnings of the commands that are shown."""
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def shown_lines(page: str) -> Iterator[str]:
    """The lines of the commands that are shown, prompts included."""
    is_shown = False
    for block in blocks_of(page):
        for line in block.content.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                is_shown = line.removeprefix("$ ").startswith(SHOWN)
            if is_shown:
                yield line


def terminal_svg(page: str) -> str:
    """The picture."""
    console = Console(
        record=True, width=112, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    for line in shown_lines(page):
        is_prompt = line.startswith("$ ")
        console.print(Text(line, style="bold green" if is_prompt else ""))
    return _FONT_FACE.sub(
        "", console.export_svg(title="tuccl", theme=MONOKAI, unique_id="terminal")
    )


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE)
    file = parser.parse_args().file
    write_atomically(file, terminal_svg(TUTORIAL.read_text(encoding="utf-8")))
    print(file)


if __name__ == "__main__":
    main()
