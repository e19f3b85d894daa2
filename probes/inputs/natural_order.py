"""The order in which people count names."""

import re


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key by which `mlx5_10` comes after `mlx5_9`."""
    return [_segment_key(segment) for segment in re.findall(r"[0-9]+|[^0-9]+", name)]


def _segment_key(segment: str) -> tuple[int, int, str]:
    """Sort key of a word or number; numbers of any length are compared without conversion."""
    if not "0" <= segment[0] <= "9":
        return 0, 0, segment
    digits = segment.lstrip("0")
    return 1, len(digits), digits
