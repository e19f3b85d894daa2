"""Pages of docs/reference that are made from the code are current and complete."""

import json
import re
import struct

import pytest
from command_reference import commands
from error_reference import error_classes, exit_code_texts
from write_json_schemas import schema_texts
from write_reference import REFERENCE, reference_pages

import tuccl
from lookup_tables import bundle_layout
from tests.tuccl.cli.test_help import ALL
from tuccl.errors import ExitCode
from tuccl.options.option import LABORATORY, options_of
from tuccl.options.run_options import RunOptions

pytestmark = pytest.mark.long


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    return text.partition(f"\n## `{heading}`\n")[2].partition("\n## ")[0]


def test_the_pages_are_current() -> None:
    pages = reference_pages()
    written = {name: page(name) for name in pages}
    assert written == pages, "run scripts/make/write_reference.py"


def test_every_command_has_its_section_with_examples() -> None:
    assert {command.words for command in commands()} == {
        f"tuccl {' '.join(words)}" for words in ALL
    }
    for command in commands():
        assert "```sh\n" in section(page("all-commands.md"), command.words)


def test_options_have_their_values_defaults_and_help() -> None:
    init = section(page("all-commands.md"), "tuccl init")
    assert "| `--nodes N` | `1` | Number of copies of it, joined by a network. |" in init
    assert "| `--plain` |  | Time calls one by one" in init
    shown = [said.help for said in options_of(RunOptions).values() if said.group != LABORATORY]
    assert sum(" ".join(text.split()) in init for text in shown) >= len(shown) - 1
    assert "fake-nodes" not in init
    bench = section(page("all-commands.md"), "tuccl bench")
    assert bench.startswith("\n`tuccl bench [OPTIONS] [PLACE] [OTHER]`\n")
    assert "| `--plain`, `--graphs` |  |" in bench
    assert "| `DIR` | required |" in section(page("all-commands.md"), "tuccl ship")
    draw = section(page("all-commands.md"), "tuccl topology draw")
    assert "| `--output`, `-o FILE` |" in draw


def test_every_exit_code_has_its_meaning() -> None:
    assert set(exit_code_texts()) == set(ExitCode)


def test_errors_have_the_exit_codes_of_the_command_line() -> None:
    found = {error.name: error for error in error_classes()}
    assert found["WorkspaceError"].code == ExitCode.ENVIRONMENT
    assert found["HostsMissingError"].code == ExitCode.FINDING
    assert found["MachineError"].code == ExitCode.BAD_INPUT
    assert found["ScheduleError"].code == ExitCode.ENVIRONMENT
    assert found["NotAFileError"].code == ExitCode.ENVIRONMENT
    assert found["Terminated"].code == ExitCode.TERMINATED
    assert all(error.text for error in found.values())


def test_every_name_of_the_python_interface_has_its_section() -> None:
    text = page("python-interface.md")
    assert set(re.findall(r"^## `(\w+)`$", text, re.MULTILINE)) == {*tuccl.__all__} - {
        "__version__"
    }
    assert "`own_schedules: str | Path | None = None`" not in text
    assert "    own_schedules: str | Path | None = None," in section(text, "tune")
    assert "| `runs` | `str` | The winner, as `ring LL128 ch16`" in section(text, "Entry")


def test_every_member_of_a_document_is_listed_with_its_type() -> None:
    text = page("json-members.md")
    assert re.search(r"\| `schema_version` \| `\d+` \|", section(text, "table"))
    assert "| `entries` | list of [`Entry`](#entry) | The entries of the bundle." in text
    assert "| `apart` | [`Apart`](#apart) or null |" in section(text, "table")
    assert section(text, "ComparedKey") != section(text, "ComparedKey of report") != ""
    for name, schema in schema_texts().items():
        document = section(text, name.removesuffix(".schema.json"))
        assert all(f"| `{member}` |" in document for member in json.loads(schema)["properties"])


def layout(struct_format: str) -> list[tuple[int, str]]:
    """Offset and type of each field of a record."""
    names = {"s": "char", "B": "u8", "H": "u16", "I": "u32", "Q": "u64", "f": "f32"}
    fields, offset = [], 0
    for count, code in re.findall(r"(\d*)([a-zA-Z])", struct_format):
        size = struct.calcsize(f"<{count}{code}")
        fields.append((offset, f"char[{count}]" if code == "s" else names[code]))
        offset += size
    return fields


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (bundle_layout.HEADER, "| 8 | u32 | format version: 1 |"),
        (bundle_layout.SECTION, "| 0 | u32 | kind |"),
        (bundle_layout.ENTRY, "| 0 | u64 | smallest size, inclusive |"),
    ],
)
def test_the_page_on_the_bundle_has_the_records_of_the_code(
    record: struct.Struct, field: str
) -> None:
    text = page("bundle-format.md")
    (table,) = [block for block in text.split("\n\n") if field in block]
    rows = re.findall(r"^\| (\d+) \| ([a-z]+\d*(?:\[\d+\])?) \|", table, re.MULTILINE)
    assert [(int(offset), kind) for offset, kind in rows] == layout(record.format)


def test_the_page_on_the_bundle_has_every_section_and_its_size() -> None:
    text = page("bundle-format.md")
    for kind, record in bundle_layout.RECORDS.items():
        said = text.partition(f"**{kind.value} {kind.name}**")[2][:90]
        assert re.search(rf"\b{record.size} bytes?\b", said), kind
