#!/usr/bin/env bash
# What interpreting costs on four GPUs: schedules interpreted, by their patterns' kernels, and by
# kernels written by hand.
#
#   scripts/bench/bench_overhead.sh [FOLDER [--seconds=S]]
exec "$(dirname "$0")/../make/run_on_programs.sh" bench_overhead "$@"
