"""Time and check calls with NCCL, as one rank of a job of measuring_job.py.

If the job preloads TuCCL's executor, results name the calls that it ran.

    measuring_rank.py JOB.json RANK

The job file and the ncclUniqueId lie in the job's folder, and so does the result.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from rank_program import from_rank_zero, run_rank

from lookup_tables.collective import Collective
from tuccl.errors import EngineBrokenError, EngineError, TucclError
from tuccl.measuring.engines.executor_engine import ExecutorEngine
from tuccl.measuring.engines.nccl_engine import NcclEngine
from tuccl.measuring.workers.engine import Call
from tuccl.runtime.executor_library import is_preloaded


def run_step(engine: NcclEngine, step: dict[str, Any]) -> dict[str, Any]:
    """Run a step: times of its call, and the check of its data if requested."""
    call = Call(
        operation=Collective.named(step["operation"]),
        size_bytes=step["size_bytes"],
        algorithm=step.get("algorithm", "default"),
        protocol=step.get("protocol", ""),
        nchannels=step.get("nchannels", 0),
        data_type=step.get("data_type", "float16"),
        in_place=step.get("in_place", False),
        use_graph=step.get("use_graph", True),
        calls=step.get("calls", 20),
        nthreads=step.get("nthreads", 0),
        buffer_bytes=step.get("buffer_bytes", 0),
        schedule=step.get("schedule", ""),
        computation_us=step.get("computation_us", 0.0),
        chunk_bytes=step.get("chunk_bytes", 0),
    )
    begin = time.monotonic()
    result: dict[str, Any] = {"times_us": engine.time(call, step.get("launches", 3))}
    result["seconds"] = time.monotonic() - begin
    if isinstance(engine, ExecutorEngine):
        result["by_executor"] = engine.ran_by(call) == "executor"
    question = engine.last_question()
    if question is not None:
        result["asked_about_bytes"] = question.size_bytes
    if question is not None and question.table is not None:
        algorithm, protocol, _ = min(question.table.costs, key=lambda cost: cost[2] or 0.0)
        result["nccl_prefers"] = f"{algorithm} {protocol}"
    if step.get("check"):
        result["finding"] = engine.check(call)
    return result


def run_job(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """Run all steps of the job in order; a call that NCCL refuses is a result."""
    engine_type = ExecutorEngine if is_preloaded() else NcclEngine
    engine = engine_type(controlled=job["controlled"])
    try:
        own = engine.make_group_id() if rank == 0 else None
        identifier = from_rank_zero(Path(job["folder"]) / "group-id", own)
        versions = engine.open(rank, job["ranks"], rank, identifier)
        results: list[dict[str, Any]] = []
        for step in job["steps"]:
            try:
                results.append(run_step(engine, step))
            except EngineBrokenError:
                raise
            except EngineError as error:
                results.append({"error": str(error)})
    finally:
        engine.close()
    return {"versions": versions, "results": results}


if __name__ == "__main__":
    sys.exit("error" in run_rank(run_job, TucclError, OSError))
