"""Attack the loaders of bundles, programs and choices with mutated input.

The fuzzers of tests/runtime/native are compiled with address and undefined behaviour sanitizers,
and run in rounds with new seeds. They bound the time and memory of every load; this
module bounds a round.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attack_findings import Findings

from lookup_tables.bundles.program_section import programs_section
from lookup_tables.collective import COLLECTIVES
from synthesizer.programs.compiler import compile_program
from tests.runtime.builds import MEMORY, NATIVE, RUNTIME, compile_native
from tests.runtime.executor_tables import chosen_table
from tests.runtime.test_choose import choice_fuzzer_of
from tests.runtime.test_program_rules import fuzzer_of
from tests.runtime.write_bundles import write_bundles
from tests.synthesizer.programs.phased_schedules import all_plans, over_gateways
from tests.synthesizer.programs.schedules import chain, exchange, halves

INPUTS_A_ROUND = 5_000
MOST_ROUND_S = 120.0
MOST_CPU_S = 100
_CRASH = {
    "ASAN_OPTIONS": "abort_on_error=1:hard_rss_limit_mb=2048",
    "UBSAN_OPTIONS": "halt_on_error=1",
}


@dataclass(frozen=True)
class Fuzzer:
    """A compiled fuzzer and the valid input that it mutates."""

    name: str
    command: tuple[str, ...]
    """SEED stands for the seed of a round."""
    start: Path


def attack(
    seconds: float,
    seed: int,
    folder: Path,
    first: int = 0,
    tried: Sequence[Fuzzer] | None = None,
) -> dict[str, int]:
    """Run rounds of fuzzers, all if none are given; each mutated input is an attempt."""
    findings = Findings("bundles", seed, folder)
    with tempfile.TemporaryDirectory(prefix="tuccl-attack-") as place:
        end = time.monotonic() + seconds
        tried = tried or fuzzers(Path(place))
        for number, rng in findings.attempts(end - time.monotonic(), first):
            fuzzer = tried[number % len(tried)]
            mutations_seed = str(rng.randrange(1 << 62))
            command = [mutations_seed if word == "SEED" else word for word in fuzzer.command]
            why = _round(command)
            findings.counts[f"rounds of {fuzzer.name}"] += 1
            findings.counts["attempts"] += INPUTS_A_ROUND - 1
            if why:
                findings.failed(
                    number, f"{fuzzer.name}, seed {mutations_seed}: {why}", fuzzer.start
                )
    return dict(findings.counts)


def fuzzers(folder: Path) -> list[Fuzzer]:
    """Compile all fuzzers and write the valid inputs that they mutate."""
    of_bundles = compile_native(
        folder / "fuzz_bundle",
        [NATIVE / "fuzz_bundle.c", NATIVE / "harness.c", *sorted(RUNTIME.glob("*.c"))],
        *MEMORY,
    )
    of_programs = fuzzer_of(folder)
    bundle, _ = write_bundles(folder)
    found = [_fuzzer(f"{kind} bundles", of_bundles, bundle, kind) for kind in ("sealed", "damaged")]
    kept = bundle.with_name("invariant.tuccl")
    found.append(_fuzzer("bundles of sums that do not move", of_bundles, kept, "sealed"))
    programs = {
        **{each.name: compile_program(each) for each in (exchange(), halves(), chain())},
        **{f"{plan.collective} {plan.name}": compile_program(plan) for plan in all_plans(2, 2)},
        **{f"{each} in rounds": compile_program(over_gateways(each)) for each in COLLECTIVES},
    }
    for number, (name, data) in enumerate(programs.items()):
        program = folder / f"{number}.program"
        program.write_bytes(data)
        found.append(_fuzzer(f"programs ({name})", of_programs, program))
    section = folder / "section"
    section.write_bytes(programs_section([*programs.values()]))
    found.append(_fuzzer("sections", of_programs, section, "s"))
    table = folder / "chosen.tuccl"
    table.write_bytes(chosen_table())
    return [*found, _fuzzer("choices", choice_fuzzer_of(folder), table)]


def _fuzzer(name: str, program: Path, start: Path, *more: str) -> Fuzzer:
    return Fuzzer(name, (str(program), str(start), str(INPUTS_A_ROUND), "SEED", *more), start)


def _round(command: list[str]) -> str:
    """Run a round; return why it failed, or an empty string."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MOST_ROUND_S,
            check=False,
            env={**os.environ, **_CRASH},
            preexec_fn=limited,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {MOST_ROUND_S:g} s"
    if done.returncode:
        told = (done.stdout + done.stderr).strip()
        return f"exit code {done.returncode}: {told[:2000]}"
    return ""
