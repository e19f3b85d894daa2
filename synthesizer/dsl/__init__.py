"""A small language for schedules, in MSCCLang's sense (section 3 of its paper).

A schedule is a sequence of statements about chunks: `Schedule.chunk` names chunks of a rank's
buffer, `Reference.copy` and `Reference.reduce` move and add them on a channel, and
`Schedule.parallelize` runs statements in several instances. The result is a `Program`, which is
lowered and verified like any other.
docs/guide/schedule-dsl.md shows how it is used.
"""

from __future__ import annotations

from synthesizer.dsl.schedule import Reference, Schedule
from synthesizer.ir.algorithm import Buffer

INPUT = Buffer.INPUT
OUTPUT = Buffer.OUTPUT
SCRATCH = Buffer.SCRATCH

__all__ = ["INPUT", "OUTPUT", "SCRATCH", "Reference", "Schedule"]
