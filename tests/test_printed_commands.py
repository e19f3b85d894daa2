"""Commands in documents: each is one that `tuccl` takes, and what is printed below it is right."""

import ast
import re
from pathlib import Path

import pytest
from write_console_output import HOME, blocks_of, outputs_of, without_variation

from tests.printed_commands import (
    commands_of,
    mentioned_commands,
    parser,
    printed_commands,
    refusal,
    shell_lines,
)

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    page.relative_to(ROOT)
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
]
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
RUN = [page for page in PAGES if "```console\n" in TEXTS[page]]
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*)")

ACTING = {"--help", "--version", "--install-completion", "--show-completion"}
"""Options that the parser itself carries out, among them one that writes to the home directory."""


def test_the_command_line_takes_every_printed_command() -> None:
    command_line = parser()
    commands = [command for page, text in TEXTS.items() for command in printed_commands(page, text)]
    assert len(commands) > 50
    refused = {
        str(command): complaint
        for command in commands
        if (complaint := refusal(command_line, command.words)) is not None
    }
    assert refused == {}


def test_every_option_of_a_mentioned_command_exists() -> None:
    command_line = parser()
    missing = []
    for page, text in TEXTS.items():
        if page.name == "CHANGELOG.md":
            continue
        for mention in mentioned_commands(page, text):
            for option in OPTION.findall(" ".join(mention.words)):
                if option in ACTING:
                    continue
                names = [word for word in mention.words[1:3] if not word.startswith("-")]
                complaint = refusal(command_line, ("tuccl", *names, option, "1"))
                if complaint is not None and "No such option" in complaint:
                    missing.append(f"{mention}: {complaint}")
    assert missing == []


def with_imported_scripts(path: Path) -> str:
    """The text of a script and of those beside it that it imports."""
    said = path.read_text(encoding="utf-8")
    beside = [
        path.with_name(f"{name}.py") for name in re.findall(r"^from (\w+) import", said, re.M)
    ]
    return "".join([said, *(each.read_text("utf-8") for each in beside if each.is_file())])


def test_options_of_printed_scripts_exist() -> None:
    missing = set()
    for page, text in TEXTS.items():
        for line in shell_lines(text):
            for script in re.findall(r"scripts/[\w/]+\.py", line):
                for words in commands_of(line, script):
                    said = with_imported_scripts(ROOT / script)
                    options = [OPTION.fullmatch(word.partition("=")[0]) for word in words]
                    missing |= {
                        (str(page), script, option[1])
                        for option in options
                        if option is not None and f'"{option[1]}"' not in said
                    }
    assert missing == set()


def test_python_is_printed_only_where_it_is_run() -> None:
    run_elsewhere = {Path("docs/guide/python.md")}
    needs_torch = {Path("docs/guide/workload.md")}
    printed = {page for page in PAGES if "```python\n" in TEXTS[page]}
    assert printed - set(RUN) <= run_elsewhere | needs_torch
    for page in needs_torch:
        for block in blocks_of(TEXTS[page]):
            ast.parse(block.content, str(page))


def test_commands_are_found_behind_launchers_and_between_operators() -> None:
    line = "export A=1; mpirun -np 2 tuccl init --nodes 2 | tail -n 1 && ./tuccl table  # tuccl x"
    assert list(commands_of(line)) == [["tuccl", "init", "--nodes", "2"], ["./tuccl", "table"]]
    assert list(commands_of("grep -i tuccl; cd tuccl")) == []


def test_shell_lines_are_those_of_blocks_and_prompts() -> None:
    text = (
        "```sh\ntuccl init \\\n  --seed 1\n```\n```console\n$ tuccl table\ntuccl is here\n```\n"
        "```\ntuccl tune\nno command\n```\n    mpirun -np 2 tuccl probe\n    tuccl\n"
    )
    assert [" ".join(line.split()) for line in shell_lines(text)] == [
        "tuccl init --seed 1",
        "tuccl table",
        "tuccl tune",
        "mpirun -np 2 tuccl probe",
    ]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("tuccl init --sede 1", "No such option: --sede"),
        ("tuccl retun", "No such command 'retun'"),
        ("tuccl ship", "Missing argument"),
        ("tuccl init --nodes two", "Invalid value"),
    ],
)
def test_a_command_that_does_not_exist_is_refused(command: str, reason: str) -> None:
    assert reason in (refusal(parser(), tuple(command.split())) or "")


def test_outputs_are_those_of_one_shell_in_an_empty_directory(tmp_path: Path) -> None:
    page = (
        "```console\n$ x=5; echo old > file\n$ cat file; pwd; echo $x >&2\nstale\n```\n"
        "```python\nfrom pathlib import Path\nPath('made').write_text('by code')\n```\n"
        "```console\n$ cat made; ls missing\n```\n"
    )
    found = outputs_of(blocks_of(page), tmp_path)
    assert found[:2] == ["", f"old\n{HOME}\n5\n"]
    assert found[2].startswith("by code")
    assert "missing" in found[2]


def test_what_differs_from_run_to_run_is_left_out() -> None:
    text = "runs/035eb612f43bf97b 2026-11-23T06:24:36Z\n  seconds: reading 0.10, x 1.00\ndeadbeefs"
    assert without_variation(text) == "runs/SUM TIME\n  seconds: ...\ndeadbeefs"
