"""What scripts/bench_nccl.py makes of its times: speedups over stock NCCL with their errors.

A key's speedup is the median over the rounds, or passes, of the geometric mean of stock's two times
by the variant's. Beside a table's stands what the table itself states of the key, so that it can be
seen how much of what a tuning promises arrives in a job.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nccl_variants import CONTROL, Key, Variant

from tuccl.words.sizes import format_size

MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2.0)
"""Standard error of a normal sample's median over that of its mean."""


def summarize(
    keys: Sequence[Key],
    variants: Sequence[Variant],
    times: dict[str, list[dict[Key, float]]],
    passes: int = 1,
) -> dict[str, Any]:
    """Times and speedups over stock by key, and what they come to; so many passes of each start."""
    rows = []
    for key in keys:
        row: dict[str, Any] = {"operation": key[0], "size_bytes": key[1]}
        for variant in variants:
            rounds_us = [by_key[key] for by_key in times[variant.name]]
            ratios = [
                base / own
                for base, own in zip(base_us(times, key, variant), rounds_us, strict=True)
            ]
            row[variant.name] = {
                "median_us": statistics.median(rounds_us),
                "rounds_us": rounds_us,
                "speedup": statistics.median(ratios),
                "standard_error": standard_error(ratios, passes),
                "least_speedup": min(ratios),
                "largest_speedup": max(ratios),
            }
        rows.append(row)
    totals = {}
    for variant in variants:
        speedups = [row[variant.name]["speedup"] for row in rows]
        totals[variant.name] = {
            "description": variant.description,
            "geomean": statistics.geometric_mean(speedups),
            "worst": extreme(min, rows, variant.name),
            "best": extreme(max, rows, variant.name),
        }
    summary: dict[str, Any] = {"keys": rows, "variants": totals, "noise": noise_of(keys, times)}
    for variant in variants:
        if variant.name == "table":
            summary["entries"] = split_by_entry(rows, variant.entries)
            summary["stated"] = compare_stated(rows, variant.stated)
    return summary


def standard_error(ratios: Sequence[float], passes: int = 1) -> float | None:
    """Of the median of a key's ratios, as if their logarithms were normal; None of one start.

    Args:
        ratios: Round by round, or start by start and of each its passes.
        passes: From one start, which are more alike than starts: so only the means of starts
            count as independent.
    """
    logs = [math.log(ratio) for ratio in ratios]
    starts = [statistics.fmean(logs[at : at + passes]) for at in range(0, len(logs), passes)]
    if len(starts) < 2:
        return None
    of_mean = statistics.stdev(starts) / math.sqrt(len(starts))
    return MEDIAN_OVER_MEAN * of_mean * statistics.median(ratios)


def noise_of(keys: Sequence[Key], times: dict[str, list[dict[Key, float]]]) -> float | None:
    """By what stock NCCL differs from itself in a round, in the root mean square over the keys.

    The standard deviation over the rounds, or passes, of the logarithm of the ratio of its two
    times; None of one.
    """
    pairs = list(zip(times["stock"], times[CONTROL], strict=True))
    if len(pairs) < 2:
        return None
    variances = (
        statistics.variance([math.log(second[key] / first[key]) for first, second in pairs])
        for key in keys
    )
    return math.sqrt(statistics.fmean(variances))


def base_us(
    times: dict[str, list[dict[Key, float]]], key: Key, variant: Variant
) -> Iterator[float]:
    """Stock's time of a key in each round, for a variant: of both its runs, if it is neither."""
    for first, second in zip(times["stock"], times[CONTROL], strict=True):
        own = variant.name in ("stock", CONTROL)
        yield first[key] if own else math.sqrt(first[key] * second[key])


def split_by_entry(rows: list[dict[str, Any]], entries: frozenset[Key]) -> dict[str, Any]:
    """Marks the keys that the table has an entry for; the table's worst of these and of the rest.

    Beside them stands the worst of stock against itself: what is no lower may be noise.
    """
    for row in rows:
        row["has_entry"] = (row["operation"], row["size_bytes"]) in entries
    return {
        "keys_with_entry": len(entries),
        "worst_with_entry": extreme(min, [row for row in rows if row["has_entry"]], "table"),
        "worst_without": extreme(min, [row for row in rows if not row["has_entry"]], "table"),
        "worst_of_control": extreme(min, rows, CONTROL),
    }


def compare_stated(
    rows: list[dict[str, Any]], stated: Mapping[Key, float]
) -> dict[str, Any] | None:
    """Adds to a key what the table states of it; geometric means of that and of what came out."""
    pairs = []
    for row in rows:
        key = (row["operation"], row["size_bytes"])
        if key in stated:
            row["stated_speedup"] = stated[key]
            pairs.append((stated[key], row["table"]["speedup"]))
    if not pairs:
        return None
    said, found = map(statistics.geometric_mean, zip(*pairs, strict=True))
    return {"keys": len(pairs), "geomean": said, "measured_geomean": found}


def extreme(
    pick: Callable[..., dict[str, Any]], rows: Sequence[dict[str, Any]], name: str
) -> dict[str, Any] | None:
    """The key with the least or the largest speedup of a variant; None of no keys."""
    if not rows:
        return None
    row = pick(rows, key=lambda row: row[name]["speedup"])
    found = row[name]
    return {
        "key": _name(row),
        "speedup": found["speedup"],
        "standard_error": found["standard_error"],
    }


def _with_error(one: dict[str, Any], between: str = " ") -> str:
    """`0.955 ± 0.017`."""
    error = one["standard_error"]
    return f"{one['speedup']:.3f}" + ("" if error is None else f"{between}±{between}{error:.3f}")


def _name(row: dict[str, Any]) -> str:
    return f"{row['operation']} {format_size(row['size_bytes'])}"


def _entry_mark(row: dict[str, Any]) -> str:
    """`  entry 1.302`, with the speedup that the table states, if it does."""
    if not row["has_entry"]:
        return ""
    stated = row.get("stated_speedup")
    return "  entry" if stated is None else f"  entry {stated:.3f}"


def tell(summary: dict[str, Any]) -> None:
    """The summary for people."""
    names = list(summary["variants"])
    marked = "entries" in summary
    print(f"{'key':<24}" + "".join(f"{name:>14} {'':>13}" for name in names))
    for row in summary["keys"]:
        cells = "".join(
            f"{row[name]['median_us']:>11.2f} us  {_with_error(row[name], ''):<12}"
            for name in names
        )
        print(f"{_name(row):<24}{cells}{_entry_mark(row) if marked else ''}".rstrip())
    for name, total in summary["variants"].items():
        worst, best = total["worst"], total["best"]
        print(
            f"{name}: geomean {total['geomean']:.4f}, worst {_with_error(worst)} ({worst['key']}), "
            f"best {_with_error(best)} ({best['key']}); {total['description']}"
        )
    if summary["noise"] is not None:
        print(
            f"stock and stock again differ by {100.0 * summary['noise']:.1f} % in a round or pass"
        )
    if marked:
        tell_entries(summary["entries"], len(summary["keys"]))
        if (stated := summary["stated"]) is not None:
            print(
                f"speedups that the table states (behind `entry`, {stated['keys']} of the keys): "
                f"geomean {stated['geomean']:.4f}, here {stated['measured_geomean']:.4f}"
            )


def tell_entries(found: dict[str, Any], keys: int) -> None:
    """What the table's entries are worth beside the noise."""
    worst = [
        f"{what} {_with_error(one)} ({one['key']})" if one else f"{what} none"
        for what, one in (
            ("of these", found["worst_with_entry"]),
            ("of the others", found["worst_without"]),
            (f"of {CONTROL}", found["worst_of_control"]),
        )
    ]
    print(
        f"the table has an entry for {found['keys_with_entry']} of {keys} keys; worst ratio "
        + ", ".join(worst)
    )
