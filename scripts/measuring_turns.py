"""Jobs that run side by side and take turns at every step, so that they meet the same machine.

What one job after the other measures is apart by seconds, in which a host's processors may become a
tenth faster or slower; what jobs measure in turn is apart by milliseconds. While a job waits, its
ranks sleep, and NCCL's threads with them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from measuring_job import JobError, JobResult, RunningJob, end_job


def run_in_turns(jobs: Sequence[RunningJob], steps: int, period: int) -> list[JobResult]:
    """Let jobs, all of as many steps, take turns at each step, and wait for their end.

    Args:
        jobs: Started with `in_turns`.
        steps: Of each job.
        period: After so many steps they repeat; whoever is first at a step is second or last when
            it comes again.

    Raises:
        JobError: A rank died or hung; all jobs are ended.
    """
    try:
        failed = next((job for job in jobs if not _all_answer(job)), None)
        for number in range(steps):
            if failed is not None:
                break
            shift = (number % period + number // period) % len(jobs)
            order = (*jobs[shift:], *jobs[:shift])
            failed = next((job for job in order if not _takes_its_turn(job)), None)
        if failed is not None:
            _kill([job for job in jobs if job is not failed])
            end_job(failed)
            raise JobError(f"a rank of {failed.folder.name} did not take its turn")
        return [end_job(job) for job in jobs]
    finally:
        _kill(jobs)


def _takes_its_turn(job: RunningJob) -> bool:
    """Tell all ranks of a job to go on; whether all have done their step."""
    try:
        for turn in job.turns:
            turn.sendall(b".")
    except OSError:
        return False
    return _all_answer(job)


def _all_answer(job: RunningJob) -> bool:
    """Whether all ranks say that they wait for the next turn; not if one is gone or late."""
    try:
        for turn in job.turns:
            turn.settimeout(max(0.001, job.begin + job.limit_s - time.monotonic()))
            if not turn.recv(1):
                return False
    except OSError as error:
        print(f"{job.folder.name}: {error}", file=sys.stderr)
        return False
    return True


def _kill(jobs: Sequence[RunningJob]) -> None:
    for job in jobs:
        for process in job.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for turn in job.turns:
            turn.close()
