"""The rules by which tools read a table's forms, as their documents and sources have them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def sourced(script: Path | str, **given: str) -> dict[str, str]:
    """The environment of a shell with these variables that has sourced a script."""
    command = ["/bin/sh", "-euc", f'. "{script}"; /usr/bin/env -0']
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


def docker_env_file(text: str) -> dict[str, str]:
    """Docker (cli, opts/envfile.go): no quotes, `#` begins a comment at a line's start alone."""
    found = {}
    for line in text.splitlines():
        trimmed = line.lstrip(" \t")
        if not trimmed or trimmed.startswith("#"):
            continue
        name, equals, value = trimmed.partition("=")
        assert equals, f"{line!r} would be taken from docker's own environment"
        assert not re.search(r"\s", name), f"docker refuses the name {name!r}"
        found[name] = value
    return found


def systemd_environment_file(text: str) -> dict[str, str]:
    """systemd.exec(5), EnvironmentFile=: quotes and backslashes count, `#` and `;` comment."""
    found = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        name, _, value = line.partition("=")
        assert not re.search(r"""["'\\]""", value), f"systemd unquotes {value!r}"
        found[name.strip()] = value.strip()
    return found


def slurm_task_prolog(output: str) -> dict[str, str]:
    """Slurm's prolog guide: `export NAME=value` to the end of the line, nothing is unquoted."""
    found = {}
    for line in output.splitlines():
        if line.startswith("export "):
            name, equals, value = line.removeprefix("export ").partition("=")
            assert equals
            found[name] = value
        else:
            assert line.startswith(("unset ", "print ")), f"Slurm ignores {line!r}"
    return found


def enroot_environment(text: str, host: dict[str, str]) -> dict[str, str]:
    """enroot (src/common.sh, envsubst and envfmt): `${NAME}` is the host's, comments go."""
    found = {}
    for line in text.splitlines():
        put_in = re.sub(r"\$\{(\w+)\}", lambda match: host.get(match[1], ""), line).lstrip()
        if not re.match(r"[A-Za-z_]\w*=", put_in) or put_in.startswith("ENROOT_"):
            continue
        name, _, value = put_in.partition("=")
        found[name] = re.sub(r"""^["'](.*)["']\s*$""", r"\1", value)
    return found


def fstab(text: str) -> list[list[str]]:
    r"""fstab(5): fields between blanks, which are \040 in a field, as backslashes are \134."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [
        [field.replace("\\040", " ").replace("\\134", "\\") for field in re.split(r"[ \t]+", line)]
        for line in lines
    ]
