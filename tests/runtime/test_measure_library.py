"""The library that times NCCL, compiled with sanitizers over stand-ins of CUDA and NCCL."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.runtime.conftest import RUNTIME, compile_c
from tests.runtime.test_native import MEMORY, NATIVE, THREADS, build


@pytest.mark.long
@pytest.mark.parametrize("flags", [MEMORY, THREADS], ids=["memory", "threads"])
def test_a_session_per_thread(
    flags: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    plugin_sources: list[Path],
    tmp_path: Path,
) -> None:
    sources = [*sorted((RUNTIME / "measure").glob("*.c")), *plugin_sources]
    include = (f"-I{RUNTIME / 'measure'}", "-rdynamic")
    program = build(tmp_path_factory, "measure_session", sources, *flags, *include, "-lm", "-ldl")
    shared = (*flags, "-fPIC", "-shared")
    compile_c(tmp_path / "libcuda.so.1", [NATIVE / "stand_in_cuda.c"], *shared)
    nccl = compile_c(tmp_path / "libnccl.so.2", [NATIVE / "stand_in_nccl.c"], *shared)
    done = subprocess.run(
        [program, nccl],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "4 ranks measured and checked\n"
