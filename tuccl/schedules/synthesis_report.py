"""The report of `tuccl synthesize`: a schedule, its bounds and the other schedules tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.topology.graph import Topology
from probes.topology.unmeasured import unmeasured
from sketches.chunking import msccl_multiple_bytes
from synthesizer.bounds.time_bounds import TimeBound
from synthesizer.ir.algorithm import Algorithm
from tuccl.quantities import format_size
from tuccl.schedules.across_hosts import on_nodes
from tuccl.schedules.schedule_choice import Choice, Request, Tried

_MOST_SHOWN = 5
"""Greatest number of other schedules that the text lists."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of all schedules on a machine."""

    bandwidth_gb_per_s: float
    latency_us: float
    time: TimeBound
    """Bound of the time at every size."""

    def time_us(self, size_bytes: int) -> float:
        """Return the time that no schedule undercuts."""
        return self.time.time_us(size_bytes)


@dataclass(frozen=True)
class Synthesis:
    """The fastest schedule that was found, and the schedules that it was chosen from."""

    topology: Topology
    request: Request
    bounds: Bounds
    choice: Choice
    notes: tuple[str, ...]
    """Sketches that were not tried, and what a runtime would refuse."""
    seconds: dict[str, float]
    """Seconds by stage."""

    @property
    def schedule(self) -> Algorithm:
        """The schedule, proved right."""
        return self.choice.best.algorithm

    @property
    def time_us(self) -> float:
        """Its simulated time, with messages in turn or with fair sharing, whichever is worse."""
        return self.choice.best.time_us

    @property
    def gb_per_s(self) -> float:
        """Algorithm bandwidth as nccl-tests defines it: bytes of the call over its time."""
        return self.request.size_bytes * 1e-3 / self.time_us

    @property
    def bound_us(self) -> float:
        """Time that no schedule on this machine undercuts."""
        return self.bounds.time_us(self.request.size_bytes)

    @property
    def share_of_bound(self) -> float:
        """Share of the bound that the schedule reaches, at most 1."""
        return self.bound_us / self.time_us


def as_dict(outcome: Synthesis, files: Sequence[Path], wanted: str | None) -> dict[str, Any]:
    """Return the document of `--json`, with the files that were written and their format."""
    request, bounds, best = outcome.request, outcome.bounds, outcome.choice.best
    across = on_nodes(best.algorithm, best.sketch.node_of_rank)
    return {
        "topology": outcome.topology.name,
        "fingerprint": outcome.topology.fingerprint(),
        "ranks": best.sketch.ranks,
        "nodes": outcome.topology.node_count,
        "operation": request.collective.value,
        "size_bytes": request.size_bytes,
        "algorithm": best.algorithm.name,
        "origin": _origin(best),
        "steps": best.algorithm.step_count,
        "chunks": best.algorithm.chunks_per_loop,
        **_times(best),
        "algbw_gb_per_s": outcome.gb_per_s,
        "bound_gb_per_s": bounds.bandwidth_gb_per_s,
        "bandwidth_ratio": outcome.gb_per_s / bounds.bandwidth_gb_per_s,
        "assumed": unmeasured(outcome.topology),
        "latency_bound_us": bounds.latency_us,
        "time_bound_us": outcome.bound_us,
        "ratio": outcome.share_of_bound,
        "solver": _solver(best),
        "seconds": {stage: round(taken, 6) for stage, taken in outcome.seconds.items()},
        "chunking": _chunking(outcome),
        "sketch": {
            "name": best.sketch.name,
            "why": best.sketch.why,
            "sizes": _sizes(outcome),
        },
        "left_out": [{"sketch": name, "why": why} for name, why in outcome.choice.left_out.items()],
        "file": str(files[0]) if len(files) == 1 else None,
        "files": [str(file) for file in files],
        "format": wanted,
        "tried": [
            {
                "algorithm": tried.algorithm.name,
                "origin": _origin(tried),
                "sketch": tried.sketch.name,
                **_times(tried),
            }
            for tried in outcome.choice.tried
        ],
        "across_hosts": None if across is None else across.as_dict(),
        "notes": list(outcome.notes),
    }


def _times(tried: Tried) -> dict[str, float]:
    """Return the times of both models of sharing, and the one that counts."""
    return {
        "time_us": tried.time_us,
        "in_turn_us": tried.times.in_turn_us,
        "fair_us": tried.times.fair_us,
    }


def _chunking(outcome: Synthesis) -> dict[str, Any]:
    """Return the size of chunks, the sketch's demands on them, and their misfits."""
    request, best = outcome.request, outcome.choice.best
    wanted = best.sketch.chunking_for(request.size_bytes)
    chunks = best.algorithm.chunks_per_loop
    parts = request.collective.parts(best.sketch.ranks)
    return {
        "chunk_bytes": request.size_bytes / chunks,
        "msccl_takes_multiples_of_bytes": msccl_multiple_bytes(chunks, parts),
        "grain_bytes": wanted.grain_bytes if wanted else None,
        "line_bytes": wanted.line_bytes if wanted else None,
        "slot_bytes": wanted.slot_bytes if wanted else None,
        "why": wanted.reason if wanted else None,
        "misfits": [misfit.text for misfit in best.misfits],
    }


def _sizes(outcome: Synthesis) -> dict[str, Any] | None:
    """Return the sizes that the sketch is tried for; None means all."""
    sizes = outcome.choice.best.sketch.sizes_of(outcome.request.collective.value)
    if sizes is None:
        return None
    return {"min_bytes": sizes.min_bytes, "max_bytes": sizes.max_bytes, "why": sizes.reason}


def _origin(tried: Tried) -> str:
    return "expert" if tried.synthesis is None else "synthesized"


def _solver(tried: Tried) -> dict[str, Any]:
    """Return the solver's gap; an expert algorithm has none."""
    result = tried.synthesis
    if result is None:
        return {"status": "not used", "gap": None, "fallback": None}
    status = "fallback" if result.fallback else "optimal"
    return {"status": status, "gap": result.solver_gap, "fallback": result.fallback}


def as_text(outcome: Synthesis) -> str:
    """Return the report as text."""
    request, bounds, best = outcome.request, outcome.bounds, outcome.choice.best
    result = best.synthesis
    how = "expert algorithm"
    if result is not None:
        how = f"synthesized, {result.fallback or 'optimal routes'}, gap {result.solver_gap:.1%}"
    stages = ", ".join(f"{stage} {taken:.2f}" for stage, taken in outcome.seconds.items())
    task = f"{request.collective} of {format_size(request.size_bytes)}"
    machine = f"{outcome.topology.name}, {best.sketch.ranks} GPUs"
    share = f"{outcome.share_of_bound:.1%}"
    limits = f"{bounds.latency_us:.2f} us and algbw {bounds.bandwidth_gb_per_s:.2f} GB/s"
    across = on_nodes(best.algorithm, best.sketch.node_of_rank)
    times = best.times
    shares = f"links in turn {times.in_turn_us:.2f} us, shared fairly {times.fair_us:.2f} us"
    lines = [
        f"{task} on {machine} on {outcome.topology.node_count} node(s): {best.algorithm.name}",
        f"  {how}; {best.algorithm.chunks_per_loop} chunks, {best.algorithm.step_count} steps",
        f"  sketch {best.sketch.name}: {best.sketch.why}",
        *_chunk_lines(outcome),
        *([] if across is None else [f"  {across.as_text()}"]),
        f"  simulated {best.time_us:.2f} us, algbw {outcome.gb_per_s:.2f} GB/s, {shares}",
        f"  bounds of the machine {limits}, together {outcome.bound_us:.2f} us: {share} reached",
        *([f"  {assumed}"] if (assumed := unmeasured(outcome.topology)) else []),
        f"  seconds: {stages}",
    ]
    others = outcome.choice.tried[1:]
    lines += [
        f"  beside it: {tried.algorithm.name} on {tried.sketch.name}, {tried.time_us:.2f} us"
        for tried in others[:_MOST_SHOWN]
    ]
    if len(others) > _MOST_SHOWN:
        lines.append(f"  and {len(others) - _MOST_SHOWN} slower ones")
    lines += [f"  not tried: sketch {name}, {why}" for name, why in outcome.choice.left_out.items()]
    return "\n".join(lines) + "\n"


def _chunk_lines(outcome: Synthesis) -> list[str]:
    """Return lines on the choice of chunks if it is not obvious."""
    best = outcome.choice.best
    if best.misfits:
        return [f"  chunks: {misfit.text}" for misfit in best.misfits]
    faster = min(outcome.choice.tried, key=lambda tried: tried.time_us)
    if faster.time_us == best.time_us:
        return []
    chunks, more = faster.algorithm.chunks_per_loop, best.time_us / faster.time_us - 1
    return [
        f"  chunks: taken before {chunks}, which save {more:.1%}: {misfit.text}"
        for misfit in faster.misfits
    ]
