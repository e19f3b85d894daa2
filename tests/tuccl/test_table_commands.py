"""What looking at a table costs."""

import subprocess
import sys


def test_looking_at_a_table_imports_nothing_that_makes_one() -> None:
    """`tuccl table` took 2.75 s with all that, and 0.87 s without."""
    script = "import sys, tuccl.table_commands; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    packages = {name.partition(".")[0] for name in loaded}
    assert not packages & {"sketches", "synthesizer", "networkx", "numpy", "optuna", "pulp"}
    assert not loaded & {"tuccl.pipeline", "tuccl.settings", "tuccl.backend_choice"}
