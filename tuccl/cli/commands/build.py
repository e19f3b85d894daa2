"""The command `tuccl build-executor`, behind its options."""

from __future__ import annotations

from tuccl.errors import ExitCode, UsageError
from tuccl.runtime.compiling.cuda_toolkit import architectures_here, read_architectures
from tuccl.runtime.compiling.executor_build import Built, build, builds_there, gpu_programs
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_json

SCHEMA_VERSION = 1


def build_executor(arch: str | None, force: bool, as_json: bool) -> int:
    """Compile the executor and the P2P benchmark where there is no build of them yet."""
    programs = gpu_programs()
    wanted = read_architectures(arch) if arch is not None else architectures_here()
    found = builds_there(programs, wanted)
    if force or len(found) < len(programs):
        if not wanted:
            raise UsageError(
                "nvidia-smi tells of no GPU here: name the architectures to compile for, as in "
                "--arch 80,90"
            )
        found = build(programs, wanted, display.say, force=force)
    for program in found:
        if not program.compiled:
            names = ", ".join(program.build.architectures)
            display.say(f"{program.name} is there already, for architecture {names}")
    _print(found, as_json)
    return ExitCode.OK


def _print(found: list[Built], as_json: bool) -> None:
    if not as_json:
        for program in found:
            print(program.build.path)  # noqa: T201 - the command's result
        return
    builds = [
        {
            "name": program.name,
            "path": str(program.build.path),
            "architectures": list(program.build.architectures),
            "compiled": program.compiled,
        }
        for program in found
    ]
    print_json({"builds": builds}, SCHEMA_VERSION)
