"""The profiler plugin and the program that plays NCCL, compiled for a test."""

from pathlib import Path

from tests.runtime.builds import NATIVE, RUNTIME, compile_native

PROFILER = RUNTIME / "profiler"
PLAYER = NATIVE / "play_profiler.c"


def build_plugin(folder: Path, *flags: str) -> Path:
    """Compile the plugin, which stays in memory when it is closed."""
    library = ("-shared", "-Wl,-z,nodelete")
    sources = sorted(PROFILER.glob("*.c"))
    return compile_native(folder / "plugin.so", sources, *flags, f"-I{PROFILER}", *library)


def build_program(folder: Path, *flags: str) -> Path:
    """Compile the program that loads a plugin and calls it as NCCL does."""
    return compile_native(folder / "play", [PLAYER], *flags, f"-I{PROFILER}")


def build_player(folder: Path, *flags: str) -> tuple[Path, Path]:
    """Compile both."""
    return build_plugin(folder, *flags), build_program(folder, *flags)
