#!/usr/bin/env bash
# The executor's kernels under compute-sanitizer: random calls of patterns and of interpreted
# programs on buffers that end where their data ends, every byte compared, each rank in a process of
# its own as in a job, without NCCL in them. Ranks beyond the GPUs share them, so one GPU is enough.
#
# First without a sanitizer, then a call that is wrong on purpose, which memcheck and initcheck must
# see; then both checks under each tool. One line each. Exit code 0: all ran and nothing was found;
# 1: something was; 2: something did not end in its time or could not run.
#
#   scripts/check/check_sanitizer.sh [--seconds TOTAL] [--ranks N] [--tools "memcheck racecheck"]
#                              [--threads MOST] [--built FOLDER] [--programs FOLDER] [--logs FOLDER]
#
# --built holds check_patterns and check_programs, else nvcc makes them; --programs what
# scripts/make/write_programs.py wrote, else it is called.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
total=240 ranks=2 threads=256 built= programs= logs= tools="memcheck racecheck synccheck initcheck"
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) total=$2 ;; --ranks) ranks=$2 ;; --tools) tools=$2 ;; --threads) threads=$2 ;;
    --built) built=$2 ;; --programs) programs=$2 ;; --logs) logs=$2 ;;
    *) echo "$0: no such option: $1" >&2 && exit 2 ;;
    esac
    shift 2
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
logs=${logs:-$folder/logs}
mkdir -p "$logs"
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "$0: there is no compute-sanitizer" >&2 && exit 2; }
if [ -z "$programs" ]; then
    programs=$folder/programs
    PYTHONPATH=$root "${PYTHON:-python3}" "$root/scripts/make/write_programs.py" "$programs" || exit 2
fi
if [ -z "$built" ]; then
    built=$folder
    for name in patterns programs; do
        "$root/scripts/make/build_gpu_check.sh" "check_$name" "$built/check_$name" || exit 2
    done
fi
deadline=$((SECONDS + total)) code=0 left=0

worse() { [ "$1" -le "$code" ] || code=$1; }

# start NAME SECONDS [SANITIZER WORDS] -- CHECK WORDS: one process per rank; `ended` has their codes.
start() {
    local name=$1 seconds=$2 rank pids=() tool=()
    shift 2
    while [ "$1" != -- ]; do tool+=("$1") && shift; done
    shift
    mkdir "$folder/$name"
    for ((rank = 0; rank < ranks; rank++)); do
        local log=$logs/$name.$rank
        local under=()
        [ ${#tool[@]} -eq 0 ] || under=("$sanitizer" "${tool[@]}" --launch-timeout "$seconds"
            --error-exitcode 99 --print-limit 20 --log-file "$log.log")
        timeout -k 2 "$seconds" "${under[@]}" "$@" --ranks="$ranks" --rank="$rank" \
            --folder="$folder/$name" >"$log.out" 2>&1 &
        pids+=($!)
    done
    ended=()
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}"
        ended+=($?)
    done
}

# Seconds for the next of the runs that are left.
share() {
    local rest=$((deadline - SECONDS))
    seconds=$((rest / (left > 0 ? left : 1)))
    left=$((left - 1))
    [ "$seconds" -ge 4 ] || seconds=4
}

# What the logs of a run say in all: `found` errors or hazards, of `summaries` ranks.
read_logs() {
    found=$(cat "$logs/$1".*.log 2>/dev/null | sed -nE 's/.*SUMMARY: ([0-9]+) .*/\1/p' |
        awk '{ sum += $1 } END { print sum + 0 }')
    summaries=$(cat "$logs/$1".*.log 2>/dev/null | grep -c SUMMARY)
}

show() {
    local what
    for what in "$logs/$1".*.out; do tail -n 3 "$what"; done | sort | uniq -c | head -n 6
    cat "$logs/$1".*.log 2>/dev/null | grep -vE '^=========( COMPUTE-SANITIZER|$|     (Saved|Host))' |
        head -n 12
}

# check TOOL NAME WORDS: of `check_NAME`; no tool: plain.
check() {
    local tool=$1 name=$2 run=$1-$2 begin=$SECONDS under=() verdict cases wrong
    shift 2
    share
    if [ "$tool" != plain ]; then
        under=(--tool "$tool")
    elif [ "$seconds" -gt 15 ]; then
        seconds=15
    fi
    start "$run" "$seconds" "${under[@]}" -- "$built/check_$name" "$@" --no-times --exact \
        --largest=40000 --threads="$threads" --seconds=$(((seconds + 1) / 3))
    cases=$(sed -nE 's/^([0-9]+) cases on.*/\1/p' "$logs/$run.0.out")
    verdict=clean
    read_logs "$run"
    wrong=$(cat "$logs/$run".*.out | grep -c WRONG)
    if [ "$found" -gt 0 ] || [ "$wrong" -gt 0 ]; then
        verdict="FOUND $found, $wrong WRONG" && worse 1
    elif [[ " ${ended[*]} " =~ [^0\ ] ]]; then
        verdict="DID NOT END (codes ${ended[*]})" && worse 2
    elif [ "$tool" != plain ] && [ "$summaries" -ne "$ranks" ]; then
        verdict="ONLY $summaries SUMMARIES" && worse 2
    fi
    printf '%-10s %-9s %s: %s cases, %s ranks, %s s of %s\n' "$tool" "$name" "$verdict" \
        "${cases:-no}" "$ranks" $((SECONDS - begin)) "$seconds"
    [ "$verdict" = clean ] || show "$run"
}

# A tool that sees nothing here would see nothing elsewhere.
faulty() {
    local run=$1-faulty begin=$SECONDS
    share
    start "$run" "$seconds" --tool "$1" -- "$built/check_patterns" --faulty
    read_logs "$run"
    # Who was ended has no summary.
    [ "$found" -gt 0 ] || found=$(cat "$logs/$run".*.log | grep -cE '(Invalid|Uninitialized) __global__')
    if [ "$found" -gt 0 ]; then
        printf '%-10s faulty    seen: %s errors, as there must be, %s s\n' "$1" "$found" \
            $((SECONDS - begin))
    else
        printf '%-10s faulty    NOT SEEN (codes %s)\n' "$1" "${ended[*]}"
        worse 2
        show "$run"
    fi
}

left=2
for tool in $tools; do
    left=$((left + 2))
    case $tool in memcheck | initcheck) left=$((left + 1)) ;; esac
done
check plain patterns 100000 1
check plain programs "$programs" 100000 1
for tool in $tools; do
    case $tool in memcheck | initcheck) faulty "$tool" ;; esac
    check "$tool" patterns 100000 2
    check "$tool" programs "$programs" 100000 2
done
exit $code
