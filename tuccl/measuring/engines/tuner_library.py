"""A tuner's library as a baseline: its choices for given keys, as NCCL would ask for them.

aws-ofi-nccl's tuner, for example, has its regions in its code and reads no file. A process of its
own loads the library and asks it (`tuccl.measuring.engines.tuner_questions`), since it may crash,
print and start threads. It is handed a cost table in which all that NCCL has for an operation costs
the same, so that what the machine rules out is not known to it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lookup_tables.lookup import MAX_CHANNELS
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from probes.inputs.messages import printable
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError
from tuccl.search.trials.baseline import ALGORITHMS_OF, Baseline, TunerRow
from tuccl.search.trials.config import Task

_ELF = b"\x7fELF"
_LIMIT_S = 60.0
_Answer = tuple[int, int, int] | None
"""Algorithm, protocol and channels of a choice, by NCCL's numbers; None: NCCL decides."""


def is_library(path: Path) -> bool:
    """Whether a file is a library rather than a tuner's CSV.

    Raises:
        InputFileError: It cannot be read.
    """
    try:
        return read_regular_file(path)[: len(_ELF)] == _ELF
    except OSError as error:
        raise InputFileError(
            f"{path}: {error.strerror or error}; name a tuner's CSV or library"
        ) from error


def ask_library(path: Path, tasks: Sequence[Task]) -> Baseline:
    """Return what a tuner's library chooses for keys, registered buffers and others apart.

    Raises:
        InputFileError: It cannot be loaded or asked, or it chooses nothing for any of the keys.
    """
    asked = {_question(task): task for task in tasks if task.operation.asks_tuner}
    answers = _answers(path, list(asked))
    rows = tuple(
        row
        for task, of_call in zip(asked.values(), answers, strict=True)
        for row in _rows(task, of_call)
    )
    if not rows:
        raise InputFileError(
            f"{path} chooses nothing for any of {len(asked)} calls: that of aws-ofi-nccl knows the "
            "instances of AWS alone, elsewhere by OFI_NCCL_FORCE_PRODUCT_NAME=p5en.48xlarge"
        )
    return Baseline(path.name, rows)


def _question(task: Task) -> tuple[int, int, int, int, tuple[int, ...]]:
    """Return function, bytes, ranks, nodes, and the algorithms that NCCL has, by their numbers."""
    order = list(NcclAlgorithm)
    had = tuple(sorted(order.index(each) for each in ALGORITHMS_OF[task.operation]))
    return task.operation.code, task.called_bytes, task.shape.ranks, task.shape.nodes, had


def _rows(task: Task, answers: Sequence[_Answer]) -> Iterator[TunerRow]:
    """Yield a row if the answers for other buffers and for registered ones agree, else one each."""
    others, registered = answers
    of_buffers: tuple[tuple[_Answer, bool | None], ...] = ((others, False), (registered, True))
    if others == registered:
        of_buffers = ((others, None),)
    for answer, is_registered in of_buffers:
        if answer is not None:
            algorithm, protocol, channels = answer
            yield TunerRow(
                line=0,
                operation=task.operation,
                min_bytes=task.called_bytes,
                max_bytes=task.called_bytes,
                algorithm=list(NcclAlgorithm)[algorithm],
                protocol=list(NcclProtocol)[protocol],
                nchannels=min(MAX_CHANNELS, max(0, channels)),
                nodes=task.shape.nodes,
                ranks=task.shape.ranks,
                pipelined=1,
                registered=is_registered,
            )


def _answers(path: Path, asked: Sequence[tuple[object, ...]]) -> list[list[_Answer]]:
    """Ask the library in a process of its own; two answers to each question."""
    command = [sys.executable, "-P", "-m", "tuccl.measuring.engines.tuner_questions"]
    try:
        done = subprocess.run(  # noqa: S603 - this program
            [*command, str(path.resolve())],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InputFileError(f"{path} did not answer within {_LIMIT_S:.0f} s") from error
    last = printable(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise InputFileError(f"{path} ended its process by {name} when it was asked: {last:.300}")
    if done.returncode:
        raise InputFileError(f"{path} cannot be asked as a tuner: {last:.300}")
    found: list[list[_Answer]] = [
        [None if one is None else tuple(one) for one in of_call]
        for of_call in json.loads(done.stdout)
    ]
    return found
