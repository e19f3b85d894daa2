"""AMD's names of GPU architectures as the numbers that a topology holds: `gfx90a` is 910.

A number is 100 x major + 10 x minor + stepping, as in HIP's old `gcnArch` and RCCL's older files.
NVIDIA's compute capabilities times ten are below all of them.
"""

from __future__ import annotations

import re

_LEAST = 600
_NAME = re.compile(r"gfx(\d{1,2})(\d)([0-9a-f])")


def gfx_number(name: str) -> int | None:
    """Parse an architecture's name, `gfx942:sramecc+:xnack-` to 942; None if it is not one.

    Features after a colon are ignored, as RCCL ignores them.
    """
    match = _NAME.fullmatch(name.strip().lower().partition(":")[0])
    if match is None:
        return None
    number = 100 * int(match[1]) + 10 * int(match[2]) + int(match[3], 16)
    # A hexadecimal stepping outside gfx90x would give the number of another architecture.
    return number if gfx_name(number) == match[0] else None


def gfx_name(number: int) -> str:
    """Architecture's name, `gfx90a` for 910; empty for a number that is not AMD's."""
    if number < _LEAST:
        return ""
    if 910 <= number <= 915:
        # No gfx91x exists; these are the steppings a to f of gfx90x.
        return f"gfx90{number - 900:x}"
    return f"gfx{number}"
