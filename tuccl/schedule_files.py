"""The forms in which a schedule is written to a file, and what their runtimes make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from synthesizer.algorithm import Algorithm
from synthesizer.msccl_limits import check_limits
from synthesizer.msccl_xml import Dialect, write_msccl_xml
from tuccl.errors import UsageError

DEFAULT_FORMAT = "msccl"
_FORMATS: dict[str, Callable[[Algorithm], str]] = {
    "msccl": write_msccl_xml,
    "msccl-microsoft": lambda algorithm: write_msccl_xml(algorithm, Dialect.MICROSOFT),
}


def require_format(name: str) -> None:
    """Checks a format's name before any work is done for it.

    Raises:
        UsageError: There is no such format.
    """
    if name not in _FORMATS:
        raise UsageError(f"format {name!a:.60} is unknown: use one of {', '.join(_FORMATS)}")


def schedule_text(algorithm: Algorithm, name: str) -> str:
    """The schedule in a format that `require_format` has let pass."""
    return _FORMATS[name](algorithm)


def runtime_notes(algorithm: Algorithm, size_bytes: int) -> Iterator[str]:
    """Why an MSCCL runtime would leave the call to NCCL, one sentence each."""
    if size_bytes % algorithm.chunks_per_loop:
        yield (
            f"an MSCCL runtime takes no size that {algorithm.chunks_per_loop} chunks do not "
            f"divide, so not this one"
        )
    for limit in check_limits(algorithm):
        yield f"an MSCCL runtime would not run it: {limit}"
