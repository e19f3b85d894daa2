from pathlib import Path

import pytest

from tuccl.errors import UsageError
from tuccl.options.output_file import check_output


@pytest.mark.parametrize(
    "read", ["record.parquet", "machines.json#one", "link", "hard", "folder/../record.parquet"]
)
def test_a_file_that_is_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    output = tmp_path / read.partition("#")[0]
    (tmp_path / "record.parquet").write_bytes(b"GPU hours")
    (tmp_path / "machines.json").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("record.parquet")
    (tmp_path / "hard").hardlink_to(tmp_path / "record.parquet")
    with pytest.raises(UsageError, match=r"^-o .* is read by this command; name another file"):
        check_output(output, "-o", (None, "shipped:h200-4gpu", read))
    with pytest.raises(UsageError, match="is read by"):
        check_output(output, "-o", (Path("machines.json"), Path("record.parquet")))


def test_other_files_are_written_there_already_or_not(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"")
    (tmp_path / "a#b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"")
    for name in ("old", "new", "none/such", "a", "x" * 300, "old/below"):
        check_output(tmp_path / name, "-o", (tmp_path / "a#b", tmp_path / "gone", None))


def test_a_directory_and_standard_output_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a directory: name a file in it$"):
        check_output(tmp_path, "-o")
    with pytest.raises(UsageError, match="never written to standard output"):
        check_output(Path("-"), "-o")
