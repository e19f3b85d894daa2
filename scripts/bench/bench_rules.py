"""Time the executor's configurations beside NCCL and write the best ones as a bundle.

    bench_rules.py --executor libtuccl-executor.so --bundle swept.tuccl [--to 64M] [--json FILE]

One job of new processes runs all calls, in CUDA graphs unless --plain is given. The bundle is for
TUCCL_BUNDLE and `check_executor_torch.py --bundle`; `tuccl bench` compares a job with a table to
stock NCCL. Needs NVIDIA GPUs, an installed NCCL and a C compiler. Exit code 0, or 2 when something
could not run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "check")]

from measuring_job import JobError, build_libraries  # noqa: E402
from measuring_site import Key, Site  # noqa: E402
from random_calls import Rule  # noqa: E402
from runtime_sweep import sweep, write_rules  # noqa: E402

from tuccl.engines.nccl_environment import count_gpus  # noqa: E402
from tuccl.engines.nccl_library import find_nccl  # noqa: E402
from tuccl.errors import TucclError  # noqa: E402
from tuccl.words.sizes import parse_size, size_ladder  # noqa: E402


def bench_all(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Write the bundle of this machine; return all times."""
    call = {"data_type": "float16", "in_place": arguments.in_place}
    if arguments.plain:
        call |= {"use_graph": False, "host_clock": True}
    site = Site(
        folder=folder,
        libraries=build_libraries(folder / "built"),
        nccl=str(find_nccl(arguments.nccl).path),
        ranks=arguments.gpus or count_gpus(2),
        limit_s=arguments.limit,
        call=call,
    )
    largest = parse_size(arguments.largest)
    sizes = size_ladder(parse_size(arguments.smallest), largest, 2)
    keys = [(operation, size) for operation in arguments.operations for size in sizes]
    rules, found = sweep(site, arguments.executor, keys, largest, {})
    write_rules(arguments.bundle, rules, site.ranks)
    return found


def tell(found: Iterable[Mapping[str, Any]]) -> None:
    """Print NCCL's time of each key and the executor's least."""
    nccl_us: dict[Key, float] = {}
    best: dict[Key, tuple[float, Rule]] = {}
    for row in found:
        key, rule, time_us = row["key"], row["rule"], row["us"]
        if rule is None and time_us is not None:
            nccl_us[key] = time_us
        elif time_us is not None and time_us < best.get(key, (float("inf"),))[0]:
            best[key] = (time_us, rule)
    for key in sorted(nccl_us.keys() & best.keys()):
        time_us, rule = best[key]
        print(f"{key[0]} {key[1]}: NCCL {nccl_us[key]:.2f} us, {time_us:.2f} us by {rule.line}")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--executor", type=Path, required=True, help="libtuccl-executor.so")
    parser.add_argument("--bundle", type=Path, required=True, help="the file to write")
    parser.add_argument(
        "--operations",
        nargs="+",
        default=["all_reduce", "all_gather", "reduce_scatter", "alltoall"],
    )
    parser.add_argument("--from", dest="smallest", default="1K", help="smallest size")
    parser.add_argument("--to", dest="largest", default="64M", help="largest size, in steps of 2")
    parser.add_argument("--plain", action="store_true", help="one by one, by the host's clock")
    parser.add_argument("--in-place", action="store_true")
    parser.add_argument("--gpus", type=int, help="use the first N GPUs (default: all)")
    parser.add_argument("--nccl", help="path of libnccl.so.2 (default: the one that is found)")
    parser.add_argument("--limit", type=float, default=120, help="seconds until the job is killed")
    parser.add_argument("--json", type=Path, help="write every time to this file")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark; return 0, or 2 after one line on what could not run."""
    arguments = parse_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-bench-") as folder:
            found = bench_all(arguments, Path(folder))
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        rows = [row | {"rule": row["rule"] and row["rule"].line} for row in found]
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    tell(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
