"""Random mutations of a correct schedule, most of which keep the structure sound."""

from contextlib import suppress
from dataclasses import replace
from random import Random

from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Step,
    StepRef,
    StepType,
    Threadblock,
)

Place = tuple[int, int, int]


def places(a: Algorithm) -> list[Place]:
    return [
        (gpu.rank, block.id, number)
        for gpu in a.programs
        for block in gpu.threadblocks
        for number in range(len(block.steps))
    ]


def step_at(a: Algorithm, place: Place) -> Step:
    return a.programs[place[0]].threadblocks[place[1]].steps[place[2]]


def with_block(a: Algorithm, rank: int, changed: Threadblock) -> Algorithm:
    gpu: GpuProgram = a.programs[rank]
    block = changed.id
    blocks = (*gpu.threadblocks[:block], changed, *gpu.threadblocks[block + 1 :])
    programs = (*a.programs[:rank], replace(gpu, threadblocks=blocks), *a.programs[rank + 1 :])
    return replace(a, programs=programs)


def with_steps(a: Algorithm, rank: int, block: int, steps: tuple[Step, ...]) -> Algorithm:
    return with_block(a, rank, replace(a.programs[rank].threadblocks[block], steps=steps))


def with_step(a: Algorithm, place: Place, step: Step) -> Algorithm:
    rank, block, number = place
    steps = a.programs[rank].threadblocks[block].steps
    return with_steps(a, rank, block, (*steps[:number], step, *steps[number + 1 :]))


def without_step(a: Algorithm, place: Place) -> Algorithm:
    """Drop a step; dependences on it move to the step before it, later ones keep their steps."""
    rank, block, number = place
    for waiter in places(a):
        depends = step_at(a, waiter).depends
        if waiter[0] == rank and depends and depends.threadblock == block:
            later = depends.step - (depends.step >= number)
            moved = StepRef(block, later) if later >= 0 else None
            a = with_step(a, waiter, replace(step_at(a, waiter), depends=moved))
    steps = a.programs[rank].threadblocks[block].steps
    return with_steps(a, rank, block, steps[:number] + steps[number + 1 :])


def partner(a: Algorithm, place: Place) -> Place:
    """Return the receive that matches a pure send."""
    rank, number, at = place
    block = a.programs[rank].threadblocks[number]
    position = sum(step.type.sends for step in block.steps[:at])
    for candidate in a.programs[block.send_peer].threadblocks:
        if candidate.recv_peer == rank and candidate.channel == block.channel:
            receives = [n for n, step in enumerate(candidate.steps) if step.type.receives]
            return block.send_peer, candidate.id, receives[position]
    raise AssertionError(place)


def drop_step(a: Algorithm, rng: Random) -> Algorithm:
    return without_step(a, rng.choice(places(a)))


def drop_local_step(a: Algorithm, rng: Random) -> Algorithm:
    kinds = {StepType.COPY, StepType.REDUCE, StepType.NOP}
    local = [p for p in places(a) if step_at(a, p).type in kinds]
    return without_step(a, rng.choice(local)) if local else a


def drop_message(a: Algorithm, rng: Random) -> Algorithm:
    """Drop a send and its receive, so that a contribution is missing."""
    sends = [p for p in places(a) if step_at(a, p).type is StepType.SEND]
    send = rng.choice(sends)
    receive = partner(a, send)
    kept = {
        StepType.RECV_COPY_SEND: StepType.SEND,
        StepType.RECV_REDUCE_SEND: StepType.SEND,
        StepType.RECV_REDUCE_COPY_SEND: StepType.SEND,
    }
    taken = step_at(a, receive)
    a = without_step(a, send)
    if receive[:2] == send[:2] and receive[2] > send[2]:
        receive = (*receive[:2], receive[2] - 1)
    if taken.type in kept:
        return with_step(a, receive, replace(taken, type=kept[taken.type]))
    return without_step(a, receive)


def swap_steps(a: Algorithm, rng: Random) -> Algorithm:
    rank, block, number = rng.choice(places(a))
    steps = list(a.programs[rank].threadblocks[block].steps)
    peer = rng.randrange(len(steps))
    steps[number], steps[peer] = steps[peer], steps[number]
    return with_steps(a, rank, block, tuple(steps))


def change_dependence(a: Algorithm, rng: Random) -> Algorithm:
    """Remove a dependence, or redirect it to any step of the rank."""
    tied = [p for p in places(a) if step_at(a, p).depends]
    place = rng.choice(tied) if tied and rng.random() < 0.7 else rng.choice(places(a))
    rank = place[0]
    _, block, number = rng.choice([p for p in places(a) if p[0] == rank])
    depends = None if rng.random() < 0.4 else StepRef(block, number)
    return with_step(a, place, replace(step_at(a, place), depends=depends))


def swap_dependences(a: Algorithm, rng: Random) -> Algorithm:
    rank = rng.randrange(a.ranks)
    tied = [p for p in places(a) if p[0] == rank and step_at(a, p).depends]
    if len(tied) < 2:
        return change_dependence(a, rng)
    places_swapped = rng.sample(tied, 2)
    first, second = (step_at(a, place) for place in places_swapped)
    a = with_step(a, places_swapped[0], replace(first, depends=second.depends))
    return with_step(a, places_swapped[1], replace(second, depends=first.depends))


def change_reference(a: Algorithm, rng: Random) -> Algorithm:
    """Change the offset or the buffer of an operand."""
    place = rng.choice(places(a))
    step = step_at(a, place)
    gpu = a.programs[place[0]]
    sizes = {
        Buffer.INPUT: gpu.input_chunks,
        Buffer.OUTPUT: gpu.output_chunks,
        Buffer.SCRATCH: gpu.scratch_chunks,
    }
    source = rng.random() < 0.5
    ref = step.src if source else step.dst
    buffer = rng.choice(list(Buffer)) if rng.random() < 0.3 else ref.buffer
    changed = ChunkRef(buffer, rng.randrange(max(1, sizes[buffer])))
    damaged = replace(step, src=changed) if source else replace(step, dst=changed)
    return with_step(a, place, damaged)


def change_count(a: Algorithm, rng: Random) -> Algorithm:
    """Change the count of a local step, or of both sides of a message."""
    place = rng.choice(places(a))
    step = step_at(a, place)
    count = max(1, step.count + rng.choice((-1, 1)))
    if step.type is StepType.SEND and rng.random() < 0.8:
        receive = partner(a, place)
        a = with_step(a, receive, replace(step_at(a, receive), count=count))
    return with_step(a, place, replace(step, count=count))


def change_type(a: Algorithm, rng: Random) -> Algorithm:
    """Change a step's type to another with the same messages."""
    place = rng.choice(places(a))
    step = step_at(a, place)
    like = [
        kind
        for kind in StepType
        if (kind.receives, kind.sends) == (step.type.receives, step.type.sends)
    ]
    return with_step(a, place, replace(step, type=rng.choice(like)))


def add_message(a: Algorithm, rng: Random) -> Algorithm:
    """Repeat a send and its receive."""
    send = rng.choice([p for p in places(a) if step_at(a, p).type is StepType.SEND])
    receive = partner(a, send)
    if not step_at(a, receive).type.sends and receive[:2] != send[:2]:
        for rank, block, number in (send, receive):
            steps = a.programs[rank].threadblocks[block].steps
            doubled = (*steps[: number + 1], steps[number], *steps[number + 1 :])
            a = with_steps(a, rank, block, doubled)
    return a


def change_peer(a: Algorithm, rng: Random) -> Algorithm:
    """Change a threadblock's peer, or swap the peers of two threadblocks."""
    rank = rng.randrange(a.ranks)
    side = rng.choice(("send_peer", "recv_peer"))
    connected = [block for block in a.programs[rank].threadblocks if getattr(block, side) >= 0]
    if len(connected) > 1 and rng.random() < 0.7:
        first, second = rng.sample(connected, 2)
        a = with_block(a, rank, replace(first, **{side: getattr(second, side)}))
        return with_block(a, rank, replace(second, **{side: getattr(first, side)}))
    block, peer = rng.choice(a.programs[rank].threadblocks), rng.randrange(-1, a.ranks)
    sends = side == "send_peer"
    changed = replace(block, send_peer=peer) if sends else replace(block, recv_peer=peer)
    return with_block(a, rank, changed)


def change_channel(a: Algorithm, rng: Random) -> Algorithm:
    """Change a threadblock's channel, swap two threadblocks' channels, or mirror all channels."""
    kind = rng.random()
    if kind < 0.2:
        for gpu in a.programs:
            for block in gpu.threadblocks:
                a = with_block(a, gpu.rank, replace(block, channel=a.channels - 1 - block.channel))
        return a
    rank = rng.randrange(a.ranks)
    blocks = a.programs[rank].threadblocks
    if len(blocks) > 1 and kind < 0.7:
        first, second = rng.sample(blocks, 2)
        a = with_block(a, rank, replace(first, channel=second.channel))
        return with_block(a, rank, replace(second, channel=first.channel))
    return with_block(a, rank, replace(rng.choice(blocks), channel=rng.randrange(a.channels + 1)))


MUTATIONS = (
    drop_step,
    drop_local_step,
    drop_message,
    swap_steps,
    change_dependence,
    swap_dependences,
    change_reference,
    change_reference,
    change_count,
    change_type,
    add_message,
    change_peer,
    change_channel,
)


def mutate(a: Algorithm, rng: Random) -> Algorithm:
    """Apply one effective mutation, and at times a second one."""
    right = a
    while a == right:
        a = rng.choice(MUTATIONS)(a, rng)
    if rng.random() < 0.25:
        # The first mutation may leave the second nothing to change.
        with suppress(AssertionError, IndexError):
            a = rng.choice(MUTATIONS)(a, rng)
    return a
