"""Pictures of the documents stay within their frames, and show the figures of the pages."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from gain_picture import (
    DOCS,
    LARGE_PICTURE,
    NOTES,
    bandwidth_of_large_messages,
    gain_by_size,
    gains,
    large_messages,
)
from gain_picture import PICTURE as GAIN
from record_terminal import PICTURE, TUTORIAL, shown_lines, terminal_svg

PICTURES = sorted(path for path in (DOCS / "pictures").glob("*.svg") if path != PICTURE)


def test_the_gains_are_those_of_the_notes() -> None:
    for path, drawing in (
        (GAIN, gain_by_size()),
        (LARGE_PICTURE, bandwidth_of_large_messages()),
    ):
        assert path.read_text(encoding="utf-8") == drawing.svg(), "run gain_picture.py"


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """1 GB of all_reduce in 4522.07 us on 4 ranks: 2^30 bytes x 1.5 over the time, 356.2 GB/s."""
    found = large_messages(NOTES.read_text(encoding="utf-8"))
    assert [size for size, *_ in found["all_reduce"]] == ["16 MB", "64 MB", "256 MB", "1 GB"]
    assert found["all_reduce"][-1][1:] == pytest.approx((356.2, 357.8), abs=0.05)
    assert found["all_gather"][0][1:] == pytest.approx((192.9, 281.9), abs=0.05)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_stays_within_its_frame_and_says_what_it_shows(path: Path) -> None:
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - made by our own script
    space = "{http://www.w3.org/2000/svg}"
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert root.findtext(f"{space}title")
    for text in root.iter(f"{space}text"):
        # Half of the letters on each side of the middle; 7 units are a wide letter's mean.
        letters = 7.0 * len(text.text or "")
        x, side = float(text.attrib["x"]), text.attrib["text-anchor"]
        left = x - {"start": 0.0, "middle": letters / 2, "end": letters}[side]
        assert left >= 0, text.text
        assert left + letters <= width, text.text
        assert 0 <= float(text.attrib["y"]) <= height


def test_gains_are_read_from_the_notes() -> None:
    found = gains(NOTES.read_text(encoding="utf-8"))
    assert found["all_reduce"][0] == ("1 KB", 3.73)
    assert found["reduce_scatter"][-1] == ("1 GB", 1.01)
    assert [len(points) for points in found.values()] == [11, 11, 11]


def words_of(svg: str) -> str:
    """The text of a picture without spaces, which differ between fonts and breaks of lines."""
    return "".join("".join(ET.fromstring(svg).itertext()).split())  # noqa: S314


def test_the_recording_has_the_lines_of_the_tutorial_and_fetches_nothing() -> None:
    page = TUTORIAL.read_text(encoding="utf-8")
    kept = PICTURE.read_text(encoding="utf-8")
    lines = "".join("".join(line.split()) for line in shown_lines(page))
    assert lines.startswith("$tuccl" + "init")
    assert lines in words_of(kept), "run scripts/make/record_terminal.py"
    assert lines in words_of(terminal_svg(page))
    assert "url(http" not in kept
