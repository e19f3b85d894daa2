"""Data of real machines: the folder `shared/data` beside the checkout, if it exists."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"

requires_shared_data = pytest.mark.skipif(
    not SHARED_DATA.is_dir(), reason=f"shared data not present: {SHARED_DATA}"
)
