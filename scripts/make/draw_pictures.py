"""Draw the pictures of the documents into docs/pictures.

    python scripts/make/draw_pictures.py [DIRECTORY]

A test holds the files against this script.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gain_picture
import idea_pictures

from tuccl.workspace.atomic_file import write_atomically

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def picture_texts() -> dict[str, str]:
    """The text of each picture by the name of its file."""
    drawings = {**idea_pictures.pictures(), "gain-by-size.svg": gain_picture.gain_by_size()}
    return {name: drawing.svg() for name, drawing in drawings.items()}


def main() -> None:
    """Write all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", nargs="?", type=Path, default=PICTURES)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in picture_texts().items():
        write_atomically(directory / name, text)
        print(directory / name)


if __name__ == "__main__":
    main()
