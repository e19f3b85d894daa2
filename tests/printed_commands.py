"""Commands that documents print, and the command line's verdict on them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from tuccl.cli.app import app
from tuccl.errors import TucclError

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}((?:[A-Z_]+=\S* )*(?:tuccl|mpirun|srun|python3?) .*)$", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`(tuccl [^`\n]+)`(?!`)")
_ENDS = {";", "|", "||", "&", "&&", ">", ">>", "<", "(", ")", "2>&1"}
_SHELL = {"sh", "console"}


@dataclass(frozen=True, slots=True)
class Printed:
    """A command as a page prints it, word by word."""

    page: Path
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def shell_lines(text: str) -> Iterator[str]:
    """The lines of a page that are for a shell, without prompts and with continuations joined."""
    text = text.replace("\\\n", " ")
    for language, content in _FENCED.findall(text):
        for line in content.splitlines():
            if line.startswith("$ "):
                yield line.removeprefix("$ ")
            elif language == "sh" or (language not in _SHELL and line.startswith("tuccl ")):
                yield line
    yield from _INDENTED.findall(text)


def words_of(line: str) -> list[str]:
    """The words of a line, with the shell's operators as words of their own."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>()")
    lexer.whitespace_split = True
    return list(lexer)


def commands_of(line: str, program: str = "tuccl") -> Iterator[list[str]]:
    """The words of each run of a program in a line, from its name on, without launchers."""
    command: list[str] = []
    for word in [*words_of(line), ";"]:
        if word not in _ENDS:
            command.append(word)
            continue
        places = [at for at, token in enumerate(command) if _names(token, program)]
        if places and places[0] < len(command) - 1:
            yield command[places[0] :]
        command = []


def _names(word: str, program: str) -> bool:
    """Whether a word is the program, and not a directory of its name."""
    return word == program or (word.endswith((f"bin/{program}", f"./{program}")))


def printed_commands(page: Path, text: str) -> list[Printed]:
    """All runs of `tuccl` in the shell lines of a page, as they stand there."""
    found = {tuple(words) for line in shell_lines(text) for words in commands_of(line)}
    return [Printed(page, words) for words in sorted(found)]


def mentioned_commands(page: Path, text: str) -> list[Printed]:
    """All mentions of a command with options within a sentence, as `tuccl ship DIR --to FORM`."""
    found = set()
    for code in _INLINE.findall(_FENCED.sub("", text)):
        words = code.replace("\\|", "|").replace("[", " ").replace("]", " ").split()
        found.add(tuple(words))
    return [Printed(page, words) for words in sorted(found)]


def parser() -> Any:
    """The command line, with commands that do nothing, and without options that act at once."""
    found: Any = typer.main.get_command(app)
    found.params = [param for param in found.params if "completion" not in str(param.name)]
    groups: list[Any] = [found]
    while groups:
        for command in groups.pop().commands.values():
            if hasattr(command, "commands"):
                groups.append(command)
            else:
                command.callback = lambda **_: None
    return found


def refusal(command_line: Any, words: tuple[str, ...]) -> str | None:
    """The parser's complaint about a command; None: it is accepted."""
    try:
        command_line(list(words[1:]), standalone_mode=False, prog_name="tuccl")
    except (TucclError, OSError) as error:
        return str(error)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    return None
