"""Pages that are made from the code are complete; those that people write agree with it."""

import re
import struct
import sys
from functools import cache
from pathlib import Path

import pytest
import write_reference
from error_reference import error_classes, exit_code_texts
from json_reference import schema_of, schema_texts
from write_reference import TITLES, reference_files

import tuccl
from lookup_tables import bundle_layout
from tests.tuccl.cli.test_help import ALL
from tuccl.errors import ExitCode

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.long


@cache
def made() -> dict[str, str]:
    return reference_files()


def section(text: str, heading: str) -> str:
    return text.partition(f"\n## `{heading}`\n")[2].partition("\n## ")[0]


def test_one_command_writes_pages_and_schemas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["write_reference.py", str(tmp_path)])
    monkeypatch.setattr(write_reference, "reference_files", made)
    write_reference.main()
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert written == {*TITLES, *(f"schemas/{name}.schema.json" for name in schema_texts())}
    assert (tmp_path / "errors.md").read_text(encoding="utf-8") == made()["errors.md"]


def test_every_command_has_its_section_with_options_and_examples() -> None:
    for words in ALL:
        found = section(made()["all-commands.md"], f"tuccl {' '.join(words)}").strip()
        text = found or made()["all-commands.md"].partition(f"### `tuccl {' '.join(words)}`")[2]
        assert "$ tuccl" in text, words
    init = section(made()["all-commands.md"], "tuccl init")
    assert "* `--nodes N`: Number of copies" in init
    assert "fake-nodes" not in init


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
    text = made()["python-interface.md"]
    assert set(re.findall(r"^## `(\w+)`$", text, re.MULTILINE)) == {*tuccl.__all__} - {
        "__version__"
    }
    said = "| `runs` | `str` | The setting or schedule that runs, in words"
    assert all(said in section(text, name) for name in ("KeyFigures", "EntryFigures"))


def test_every_member_of_a_document_is_listed_with_its_type() -> None:
    text = made()["json-members.md"]
    assert re.search(r"\| `schema_version` \| `\d+` \|", section(text, "table"))
    assert "| `entries` | list of [`Entry" in section(text, "table")
    assert "| `step` | [`StepGain`](#stepgain) or null |" in section(text, "table")
    for name in schema_texts():
        document = section(text, name)
        assert all(f"| `{member}` |" in document for member in schema_of(name)["properties"])


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
    text = (ROOT / "docs" / "reference" / "bundle-format.md").read_text(encoding="utf-8")
    (table,) = [block for block in text.split("\n\n") if field in block]
    rows = re.findall(r"^\| (\d+) \| ([a-z]+\d*(?:\[\d+\])?) \|", table, re.MULTILINE)
    assert [(int(offset), kind) for offset, kind in rows] == layout(record.format)


def test_the_page_on_the_bundle_has_every_section_and_its_size() -> None:
    text = (ROOT / "docs" / "reference" / "bundle-format.md").read_text(encoding="utf-8")
    for kind, record in bundle_layout.RECORDS.items():
        said = text.partition(f"**{kind.value} {kind.name}**")[2][:90]
        assert re.search(rf"\b{record.size} bytes?\b", said), kind
