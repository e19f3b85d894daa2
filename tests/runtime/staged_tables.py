"""Tables of schedules in stages and rounds for the native tests of one set of nodes, by name."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

from staged_schedules import staged_of

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import content_address
from lookup_tables.table import Entry, NcclProtocol, ScheduleConfig, Shape, StoredSchedule
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.cutting import cut
from synthesizer.programs.form import check_form
from synthesizer.programs.phases import PhasedSchedule, StatementPhase
from synthesizer.programs.proof import Proof
from synthesizer.programs.records import records_of
from tests.lookup_tables.tables import make_entry
from tests.runtime.executor_tables import LL, LL128, bundle_of
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.programs.phased_schedules import with_statements
from tuccl.errors import NoProgramError

SIZES = (1, 40_000)
LANES = (2, 1, 3, 1, 4)
"""Lanes of the schedules of each table."""
TABLES = len(LANES)
MUTATED = 12
MUTABLE = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
ROOT = 1
NodeSizes = tuple[int, ...]


@cache
def schedules_of(collective: Collective, sizes: NodeSizes) -> tuple[PhasedSchedule, ...]:
    """Return `TABLES` proved schedules: over gateways, random, and experts' of equal nodes."""
    found = staged_of(collective, sizes, ROOT)
    if len(set(sizes)) == 1:
        root = ROOT if collective.has_root else 0
        experts = expert_algorithms(collective, switched(len(sizes), sizes[0]), root=root)
        found += [cut(algorithm, sizes) for algorithm in islice(experts, 2)]
    return tuple(replace(found[turn % len(found)], lanes=lanes) for turn, lanes in enumerate(LANES))


@cache
def stored(staged: PhasedSchedule) -> StoredSchedule:
    """Return a schedule as tables keep it; one that is wrong, too."""
    try:
        program = compile_program(staged)
    except NoProgramError:
        program = records_of(staged, Proof(staged.must_run_in_place, False)).packed()
    return StoredSchedule(content_address(program).hex(), "staged", "", program)


def shape_of(sizes: NodeSizes) -> Shape:
    """Return the shape of a communicator of such nodes."""
    return Shape(sum(sizes), len(sizes), sizes[0] if len(set(sizes)) == 1 else 0)


def staged_entry(staged: PhasedSchedule, protocol: NcclProtocol = LL) -> Entry:
    """Return an entry won by a schedule."""
    config = ScheduleConfig(stored(staged).content_hash, protocol, 2, 64, 1024)
    operation = staged.collective
    shape = shape_of(staged.node_sizes)
    return make_entry(operation, *SIZES, None, shape=shape, schedule=config)


def table_of(chosen: Sequence[PhasedSchedule], protocol: NcclProtocol = LL) -> bytes:
    """Return a table that gives operations to schedules, one each."""
    entries = [staged_entry(staged, protocol) for staged in chosen]
    return bundle_of(entries, [stored(staged) for staged in chosen])


def mutated(staged: PhasedSchedule, dice: random.Random) -> PhasedSchedule:
    """Return a schedule that keeps the form, whose statements have other operands."""
    proved = staged
    for attempt in range(600):
        if attempt >= 60 and staged != proved:
            break
        items = [
            list(phase.statements) for phase in staged.phases if isinstance(phase, StatementPhase)
        ]
        item = dice.choice([each for each in items if each])
        at = dice.randrange(len(item))
        item[at] = _mutated_statement(item[at], staged.ranks, dice)
        changed = with_statements(
            staged, stages=tuple(map(tuple, items[::2])), rounds=tuple(map(tuple, items[1::2]))
        )
        with suppress(NoProgramError):
            check_form(changed)
            staged = changed
    return staged


def _mutated_statement(statement: Statement, ranks: int, dice: random.Random) -> Statement:
    def changed(chunk: Chunk) -> Chunk:
        rank = dice.choice([chunk.rank, dice.randrange(ranks)])
        buffer = dice.choice([chunk.buffer, dice.choice(list(Buffer))])
        return Chunk(rank, buffer, dice.randrange(4), chunk.count)

    operands = [statement.src, statement.dst, statement.operand]
    which = dice.randrange(3)
    if (operand := operands[which]) is not None:
        operands[which] = changed(operand)
    src, dst, added = operands
    assert src is not None
    assert dst is not None
    return Statement(src, dst, added, 0)


def mutated_names() -> list[str]:
    """Return the names of the tables with programs that nobody has proved."""
    return [f"mutated{number}" for number in range(MUTATED)]


def table_names() -> list[str]:
    """Return the names of the tables with a schedule for every operation."""
    return [f"staged{number}" for number in range(TABLES)]


def write_staged_tables(folder: Path, sizes: NodeSizes) -> None:
    """Write the tables for such nodes as NAME.tuccl."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nothing.tuccl").write_bytes(bundle_of([], []))
    for number, name in enumerate(table_names()):
        chosen = [schedules_of(collective, sizes)[number] for collective in COLLECTIVES]
        protocol = LL128 if number == 1 else LL
        (folder / f"{name}.tuccl").write_bytes(table_of(chosen, protocol))
    for number, name in enumerate(mutated_names()):
        dice = random.Random(number)
        wrong = [
            mutated(schedules_of(collective, sizes)[number % TABLES], dice)
            for collective in MUTABLE
        ]
        assert all(each not in schedules_of(each.collective, sizes) for each in wrong)
        (folder / f"{name}.tuccl").write_bytes(table_of(wrong))
    all_reduces = schedules_of(Collective.ALL_REDUCE, sizes)
    (folder / "ll128.tuccl").write_bytes(table_of(all_reduces[:1], LL128))
    (folder / "lanes0.tuccl").write_bytes(table_of(all_reduces[:1]))
    (folder / "programs.tuccl").write_bytes(bundle_of([], programs_of(sizes)))


def programs_of(sizes: NodeSizes) -> list[StoredSchedule]:
    """Return all_reduce schedules to choose from: of one lane, and of three."""
    first, second, *_ = schedules_of(Collective.ALL_REDUCE, sizes)
    return [stored(replace(first, lanes=1)), stored(replace(second, lanes=3))]


def program_places(sizes: NodeSizes) -> list[int]:
    """Return the index of each of these in its bundle."""
    hashes = [schedule.content_hash for schedule in programs_of(sizes)]
    return [sorted(hashes).index(content_hash) for content_hash in hashes]
