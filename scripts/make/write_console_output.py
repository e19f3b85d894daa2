"""Run the console blocks of documents, and write their output into them.

    python scripts/make/write_console_output.py PAGE...

A console block has lines `$ COMMAND`, each with its output below. The blocks of a page run in one
shell, in an empty directory, with the `tuccl` that is first in PATH; the python blocks of such a
page run between them, after all before them. A test compares the output with the page; times
of day, seconds, check sums and the directory may differ.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tuccl.workspace.atomic_file import write_atomically

HOME = "/home/me"
"""The directory of a run, as documents print it."""
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "end of the output of command"
_VARIES = (
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "SUM"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"^  seconds: .*$", re.MULTILINE), "  seconds: ..."),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


class CommandFailedError(Exception):
    """The shell ended before the last command of a page."""


@dataclass(frozen=True, slots=True)
class Block:
    """A console or python block of a page."""

    language: str
    content: str

    def commands(self) -> list[str]:
        """The commands of a console block."""
        lines = self.content.splitlines()
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def blocks_of(page: str) -> list[Block]:
    """The console and python blocks of a page, in order."""
    return [Block(language, content) for language, content in _BLOCK.findall(page)]


def without_variation(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return text.strip("\n")


def _script(blocks: list[Block]) -> str:
    """A shell script that runs the blocks, and ends the output of each command with a line."""
    lines, code = [], ""
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "python":
            code += block.content
            if following is None or following.language != "python":
                lines.append(f"python3 - <<'END_OF_CODE' >/dev/null\n{code}END_OF_CODE")
        for command in block.commands() if block.language == "console" else ():
            lines += [command, f"printf '%s\\n' '{_END}'"]
    return "\n".join(lines) + "\n"


def outputs_of(blocks: list[Block], directory: Path) -> list[str]:
    """The output of each command, with standard error where it was written.

    Raises:
        CommandFailedError: The shell ended before the last command.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "TUCCL_")) and name != "PYTHONPATH"
    }
    done = subprocess.run(
        ["bash", "-c", _script(blocks)],
        cwd=directory,
        env={
            **environment,
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "TUCCL_PROGRESS_EVERY": "1h",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    *outputs, rest = done.stdout.replace(str(directory), HOME).split(f"{_END}\n")
    expected = sum(len(block.commands()) for block in blocks if block.language == "console")
    if len(outputs) != expected:
        raise CommandFailedError(f"{len(outputs)} of {expected} commands ended: {rest.strip()}")
    return [re.sub(r"[ \t]+$", "", output, flags=re.MULTILINE) for output in outputs]


def renewed(page: str, directory: Path) -> str:
    """The page with the output of its commands in an empty directory."""
    outputs = iter(outputs_of(blocks_of(page), directory))

    def block(match: re.Match[str]) -> str:
        if match[1] == "python":
            return match[0]
        commands = Block(match[1], match[2]).commands()
        printed = [f"$ {command}\n{next(outputs)}" for command in commands]
        return f"```console\n{''.join(printed)}```"

    return _BLOCK.sub(block, page)


def main() -> None:
    """Write the output into the pages that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pages", nargs="+", type=Path)
    for page in parser.parse_args().pages:
        with tempfile.TemporaryDirectory() as directory:
            text = renewed(page.read_text(encoding="utf-8"), Path(directory).resolve())
        write_atomically(page, text)
        print(page)


if __name__ == "__main__":
    main()
