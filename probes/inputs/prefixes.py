"""What launchers and collectors of logs write before each line of a program: taken away.

Forms, which may stack: Slurm's `srun --label`; tags of Open MPI 4 and 5; Hydra's and Intel MPI's
ranks; torchrun's `[rank0]:` and `[default0]:`; `kubectl logs` with --timestamps and --prefix,
kubetail, stern, docker compose; files of Docker's json-file driver and of CRI; journald and syslog;
colours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice

from probes.inputs.messages import without_escapes

_TIME = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_DATE_AND_TIME = rb"\d{4}-\d\d-\d\d[T ]" + _TIME + rb"(?:Z|[+-]\d\d:?\d\d)?"
_UNIT = rb"[\w.-]+ [\w./@:-]+\[\d+\]: ?"
_PREFIXES = re.compile(
    rb"(?:"
    rb" *\d{1,7}:(?: |(?=[\r\n])|\Z)"  # srun --label pads to the width of the last task.
    rb"|\[(?:[\w.-]+@)?\d+,\d+\](?:\[[^\]\s]+\])?<std(?:out|err|diag)>: ?"
    rb"|\[(?:rank|default)\d{1,7}\]: ?"
    rb"|\[\d{1,7}\] "
    rb"|\[pod/[\w./-]+\] "
    rb"|\[[a-z0-9][a-z0-9.-]*-[a-z0-9]+(?: [a-z0-9-]+)?\] "
    rb"|[a-z0-9][a-z0-9.-]*-(?:\d+|[a-z0-9]{5}) [a-z][a-z0-9-]* "
    rb"|[a-z0-9][\w.-]*-\d+ +\| "
    rb"|\[" + _DATE_AND_TIME + rb"\] "
    rb"|" + _DATE_AND_TIME + rb" (?:std(?:out|err) [FP] |" + _UNIT + rb")?"
    rb"|(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d " + _TIME + rb" " + _UNIT + rb")+"
)
_JSON_FILE = re.compile(
    rb'\{"log":("(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"),"stream":"std(?:out|err)".*\}\s*'
)
_HEAD = 1 << 16
"""Characters in which these lines are looked for."""
_LOOKED_AT = 200
"""Lines by which a text is judged."""


def bare_line(line: bytes) -> bytes:
    """Return a line without what stands before the program's own text."""
    before = b""
    while line != before:
        before = line
        if (found := _JSON_FILE.fullmatch(line)) is not None:
            text = json.loads(found[1].decode(errors="replace"), strict=False)
            line = text.encode(errors="replace")
        elif (found := _PREFIXES.match(line)) is not None:
            line = line[found.end() :]
        elif b"\x1b" in line:
            text = line.decode(errors="surrogateescape")
            line = without_escapes(text).encode(errors="surrogateescape")
    return line


def has_prefixes(lines: Iterable[bytes]) -> bool:
    """Whether more than half of the first lines that are not blank have prefixes."""
    first = [line for line in islice(lines, _LOOKED_AT) if line.strip()]
    return 2 * sum(bare_line(line) != line for line in first) > len(first)


def without_prefixes(text: str) -> str:
    """Return a text without the prefixes of its lines; as it is, if most lines have none."""
    if not has_prefixes(text[:_HEAD].encode(errors="replace").splitlines(keepends=True)):
        return text
    lines = text.encode(errors="replace").splitlines(keepends=True)
    return b"".join(map(bare_line, lines)).decode(errors="replace")
