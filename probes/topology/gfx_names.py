"""AMD's names of GPU architectures as the numbers that a topology holds: `gfx90a` is 910.

A number is 100 x major + 10 x minor + stepping, as HIP's old `gcnArch` and RCCL's older files have
it. NVIDIA's compute capabilities, times ten, stay below all of them.
"""

from __future__ import annotations

import re

_LEAST = 600
_NAME = re.compile(r"gfx(\d{1,2})(\d)([0-9a-f])")


def gfx_number(name: str) -> int | None:
    """`gfx942:sramecc+:xnack-` is 942; None for what names no architecture.

    What follows a colon are features, which RCCL leaves out as well.
    """
    parts = _NAME.fullmatch(name.strip().lower().partition(":")[0])
    if parts is None:
        return None
    number = 100 * int(parts[1]) + 10 * int(parts[2]) + int(parts[3], 16)
    # Of a letter outside gfx90x the number would be that of another architecture.
    return number if gfx_name(number) == parts[0] else None


def gfx_name(number: int) -> str:
    """`gfx90a` for 910; empty for a number that is none of AMD's."""
    if number < _LEAST:
        return ""
    if 910 <= number <= 915:
        # No gfx91x was made; these are the steppings a to f of gfx90x.
        return f"gfx90{number - 900:x}"
    return f"gfx{number}"
