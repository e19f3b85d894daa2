#!/usr/bin/env bash
# Compiled programs on the GPUs of this host: every byte compared.
#
#   scripts/check/check_programs.sh [FOLDER [cases [seed]] [--ranks=N]]
exec "$(dirname "$0")/../make/run_on_programs.sh" check_programs "$@"
