"""Schedules whose chunks fit the size, beside those that are fastest in the model.

The chunking of a sketch (`sketches.chunking`) is a preference: a schedule with other chunks
is taken if it is clearly faster, with a note on its chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from lookup_tables.collective import Collective
from sketches.chunking import Misfit
from sketches.sketch import Sketch
from synthesizer.ir.algorithm import Algorithm
from synthesizer.plan.synthesize import SynthesisOptions, SynthesisResult, synthesize


def misfits(sketch: Sketch, algorithm: Algorithm, size_bytes: int) -> tuple[Misfit, ...]:
    """Return the misfits of a schedule's chunks at a size."""
    chunking = sketch.chunking_for(size_bytes)
    if chunking is None:
        return ()
    parts = algorithm.collective.parts(algorithm.ranks)
    return chunking.misfits(size_bytes, algorithm.chunks_per_loop, parts)


def worth(found: tuple[Misfit, ...]) -> float:
    """Return the factor by which a schedule must be faster to be taken despite its misfits."""
    return math.prod(misfit.worth for misfit in found)


def synthesize_fitting(
    collective: Collective,
    sketch: Sketch,
    size_bytes: int,
    options: SynthesisOptions,
    root: int = 0,
) -> Iterator[SynthesisResult]:
    """Yield the fastest schedule, and where its chunks do not fit, one whose chunks do.

    Raises:
        InfeasibleError: As `synthesize`.
        ScheduleError: As `synthesize`.
    """
    first = synthesize(collective, sketch, size_bytes, options, root)
    yield first
    if options.trees_per_rank or not misfits(sketch, first.algorithm, size_bytes):
        return
    chunking = sketch.chunking_for(size_bytes)
    sources = 1 if collective.has_root else sketch.ranks
    parts = collective.parts(sketch.ranks)
    counts = chunking.fitting_counts(size_bytes, sources, parts) if chunking else ()
    if counts:
        fitting = replace(options, counts=counts)
        yield synthesize(collective, sketch, size_bytes, fitting, root)
