"""The library that times NCCL, compiled with sanitizers over stand-ins of CUDA and NCCL."""

from pathlib import Path

import pytest

from tests.runtime.builds import MEMORY, NATIVE, RUNTIME, THREADS, compile_native, run
from tests.runtime.test_native import build


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(MEMORY, id="memory"),
        pytest.param(THREADS, id="threads", marks=pytest.mark.slow),
    ],
)
def test_a_session_per_thread(
    flags: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    plugin_sources: list[Path],
    tmp_path: Path,
) -> None:
    sources = [*sorted((RUNTIME / "measure").glob("*.c")), *plugin_sources]
    include = (f"-I{RUNTIME / 'measure'}", "-rdynamic", "-lm")
    program = build(tmp_path_factory, "measure_session", sources, *flags, *include)
    compile_native(tmp_path / "libcuda.so.1", [NATIVE / "stand_in_cuda.c"], *flags, "-shared")
    nccl = tmp_path / "libnccl.so.2"
    compile_native(nccl, [NATIVE / "stand_in_nccl.c"], *flags, "-shared")
    out = run(program, nccl, LD_LIBRARY_PATH=str(tmp_path))
    assert out == "4 ranks measured and checked\n"
