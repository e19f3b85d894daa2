"""What the process of a rank imports: its start-up is a part of every start of a job."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "optuna", "pandas", "psutil", "pyarrow", "pydantic", "synthesizer"}
RANK = ("tuccl.crew.worker", "tuccl.measuring.workers.engine_duty")
ENGINES = ("tuccl.measuring.engines.executor_engine", "tuccl.measuring.engines.nccl_engine")


@pytest.mark.parametrize("modules", [(*RANK, *ENGINES), ("tuccl.shipping.watching.head_start",)])
def test_what_starts_first_imports_nothing_that_takes_long(modules: tuple[str, ...]) -> None:
    allowed = set() if modules[:1] == RANK[:1] else {"psutil"}
    code = f"import {', '.join(modules)}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY - allowed == set()
