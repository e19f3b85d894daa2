#!/bin/sh
# Cost of a lookup in a bundle of 10,000 entries, all of one communicator shape. Needs cc and python3.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

PYTHONPATH=. "${PYTHON:-python3}" - "$work/bundle" <<'PYTHON'
import sys
from pathlib import Path

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.table import (
    BuiltinConfig, Entry, Key, NcclAlgorithm, NcclProtocol, Operation, Shape, Table,
)

ENTRIES = 10_000
SHAPE = Shape(8, 1, 8)
operations = sorted(list(Operation)[:5])
count = ENTRIES // len(operations)
step = 2**31 // count
config = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL128, 8)
entries = tuple(
    Entry(Key(operation, i * step, (i + 1) * step - 1, SHAPE, "bench"), i * step, config, None,
          1.0, 1.0, 2.0, 1, 0.0, "")
    for operation in operations for i in range(count)
)
table = Table("bench", "bench", (), entries)
Path(sys.argv[1]).write_bytes(bundle_bytes(table))
print(f"{len(entries)} entries, {len(bundle_bytes(table))} bytes")
PYTHON
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
    -Ituccl/runtime -o "$work/bench_lookup" scripts/bench/bench_lookup.c tuccl/runtime/*.c
"$work/bench_lookup" "$work/bundle" 8 1
