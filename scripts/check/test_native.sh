#!/bin/sh
# The native tests at length: a million mutated bundles, as many programs of all forms, and chosen
# entries, under AddressSanitizer and UBSan from a seed of one's choice, then starts
# from several threads under ThreadSanitizer, and calls of the profiler plugin under all three.
# Needs cmake, cc, and python3 with this project's packages.
#   scripts/check/test_native.sh [SEED]
set -eu
cd "$(dirname "$0")/../.."
seed=${1:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() {
    cmake -S . -B "$work/$1" -DTUCCL_BUILD_TESTS=ON -DTUCCL_BUILD_EXECUTOR=OFF \
        -DTUCCL_SANITIZE="$2" >"$work/log" \
        && cmake --build "$work/$1" -j2 >>"$work/log" || { cat "$work/log"; exit 1; }
}

PYTHONPATH=. "${PYTHON:-python3}" tests/runtime/write_bundles.py "$work"
PYTHONPATH=.:scripts/check "${PYTHON:-python3}" tests/runtime/executor_tables.py "$work/tables"
PYTHONPATH=. "${PYTHON:-python3}" scripts/make/write_programs.py "$work/programs" 3
"${PYTHON:-python3}" - "$work" <<'END'
import sys
from pathlib import Path

for form in ("uniform", "rounds"):
    golden = Path(f"tests/synthesizer/programs/golden/{form}.program.hex").read_text()
    Path(sys.argv[1], f"{form}.program").write_bytes(bytes.fromhex(golden))
END
build memory address,undefined
build threads thread
"$work/memory/tests/runtime/native/fuzz_bundle" "$work/good.tuccl" 500000 "$seed" damaged
"$work/memory/tests/runtime/native/fuzz_bundle" "$work/good.tuccl" 500000 "$seed" sealed
for program in "$work"/programs/3/all_reduce_*.program; do
    "$work/memory/tests/runtime/native/fuzz_program" "$program" 200000 "$seed"
done
"$work/memory/tests/runtime/native/fuzz_program" "$work/uniform.program" 1000000 "$seed"
"$work/memory/tests/runtime/native/fuzz_program" "$work/rounds.program" 200000 "$seed"
"$work/memory/tests/runtime/native/fuzz_choose" "$work/tables/chosen.tuccl" 200000 "$seed"
"$work/memory/tests/runtime/native/concurrent_init" "$work/good.tuccl" "$work/damaged.tuccl"
"$work/threads/tests/runtime/native/concurrent_init" "$work/good.tuccl" "$work/damaged.tuccl"
"$work/memory/tests/runtime/native/follow_control" "$work/good.tuccl" "$work/block"
"$work/threads/tests/runtime/native/follow_control" "$work/good.tuccl" "$work/block"
mkdir "$work/recording"
for checker in memory threads; do
    for abi in 1 2 3 4 5 6; do
        for mode in plain threads hostile fork; do
            TUCCL_RECORD=$work/recording \
                NCCL_PROFILER_PLUGIN=$work/$checker/libnccl-profiler-tuccl.so \
                "$work/$checker/tests/runtime/native/play_profiler" $abi 3 4 1000 $mode
        done
    done
done
PYTHONPATH=. "${PYTHON:-python3}" - "$work/recording" <<'END'
import json
import sys
from pathlib import Path

files = [json.loads(path.read_text()) for path in Path(sys.argv[1]).iterdir()]
assert len(files) == 48, len(files)
print(len(files), "processes recorded")
END
