"""A watch as metrics in the text format of Prometheus, for node_exporter's textfile collector.

https://prometheus.io/docs/instrumenting/exposition_formats/: a line of HELP and of TYPE for each
metric, then its samples; backslash, quote and line feed are escaped in the values of labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tuccl.shipping.watching.watch import WatchResult

_Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    help: str
    samples: tuple[_Sample, ...]

    def lines(self) -> Iterator[str]:
        if self.samples:
            yield f"# HELP {self.name} {self.help}"
            yield f"# TYPE {self.name} gauge"
        for labels, value in self.samples:
            listed = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{listed}}} {value:.10g}"


def watch_metrics(found: WatchResult) -> str:
    """Return the content of a textfile."""
    table = {"directory": str(found.directory), "bundle": found.bundle_crc}
    return "".join(f"{line}\n" for metric in _metrics(found, table) for line in metric.lines())


def _metrics(found: WatchResult, table: Mapping[str, str]) -> Iterator[_Metric]:
    yield _Metric(
        "tuccl_watch_unchanged",
        "1 if the host is the one that the table was tuned for, 0 if it changed.",
        ((table, float(not found.changes)),),
    )
    yield _Metric(
        "tuccl_watch_complete",
        "1 if every check could be made.",
        ((table, float(not found.unchecked)),),
    )
    counts = Counter(each.check for each in found.changes)
    checks = dict.fromkeys(each.check for each in found.findings)
    yield _Metric(
        "tuccl_watch_changes",
        "Changes that a check found.",
        tuple(({**table, "check": check}, float(counts[check])) for check in checks),
    )
    yield _Metric("tuccl_watch_seconds", "Time of the watch.", ((table, found.seconds),))
    yield _Metric(
        "tuccl_watch_gain_ratio",
        "Time of stock NCCL over that of the table, as measured now.",
        tuple(_of_keys(found, table, (key.gain.ratio for key in found.keys))),
    )
    yield _Metric(
        "tuccl_watch_promised_gain_ratio",
        "Time of stock NCCL over that of the table, as the table states.",
        tuple(_of_keys(found, table, (key.promised.ratio for key in found.keys))),
    )


def _of_keys(
    found: WatchResult, table: Mapping[str, str], values: Iterable[float]
) -> Iterator[_Sample]:
    for key, value in zip(found.keys, values, strict=True):
        call = {"operation": key.operation.value, "size_bytes": str(key.size_bytes)}
        like = {"placement": key.placement} if key.placement else {}
        yield {**table, **call, **like}, value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
