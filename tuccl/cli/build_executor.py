"""The command `tuccl build-executor`: compile the executor and the P2P benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, OUTPUT, option

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class BuildExecutorOptions:
    """The options of `tuccl build-executor`."""

    arch: str | None = option(
        OUTPUT,
        "Compute capabilities to compile for, as 80,90; those of this machine's GPUs if not given.",
        "LIST",
        default=None,
    )
    force: bool = option(OUTPUT, "Compile what exists, too.", default=False)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl build-executor", "tuccl build-executor --arch 80,90")
def build_executor(options: BuildExecutorOptions) -> int:
    """Compile the executor and the GPU benchmark with nvcc, for the GPUs here or those named."""
    from tuccl.runtime.compiling.cuda_toolkit import architectures_here, read_architectures
    from tuccl.runtime.compiling.executor_build import build, builds_there, gpu_programs
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_json

    programs, arch = gpu_programs(), options.arch
    wanted = read_architectures(arch) if arch is not None else architectures_here()
    found = builds_there(programs, wanted)
    if options.force or len(found) < len(programs):
        if not wanted:
            raise UsageError(
                "nvidia-smi finds no GPU here: name the architectures to compile for, as in "
                "--arch 80,90"
            )
        found = build(programs, wanted, display.say, force=options.force)
    for program in found:
        if not program.compiled:
            names = ", ".join(program.build.architectures)
            display.say(f"{program.name} exists already, for architecture {names}")
    if not options.as_json:
        for program in found:
            print(program.build.path)
        return ExitCode.OK
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
    return ExitCode.OK
