"""Jobs that run side by side and take turns at every step, so that they meet the same machine.

What one job after the other measures is apart by seconds, in which a host's processors may become a
tenth faster or slower; what jobs measure in turn is apart by milliseconds. While a job waits, its
ranks sleep, and NCCL's threads with them.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence

from measuring_job import LAST_WORDS_S, JobError, JobResult, RunningJob, end_job


def run_in_turns(jobs: Sequence[RunningJob], steps: int, period: int) -> list[JobResult]:
    """Let jobs, all of as many steps, take turns at each step, and wait for their end.

    Args:
        jobs: Started with `in_turns`. A turn may take as long as a job's limit.
        steps: Of each job.
        period: After so many steps they repeat; whoever is first at a step is second or last when
            it comes again.

    Raises:
        JobError: A rank died or hung; says of which job, and all are ended.
    """
    try:
        failed = next((job for job in jobs if not _all_wait(job)), None)
        for number in range(steps):
            if failed is not None:
                break
            shift = (number % period + number // period) % len(jobs)
            order = (*jobs[shift:], *jobs[:shift])
            failed = next((job for job in order if not (_let_go(job) and _all_wait(job))), None)
        if failed is not None:
            raise _what_happened(failed, [job for job in jobs if job is not failed])
        for job in jobs:
            _let_go(job)  # To its end, which would be in the others' way before.
        return [end_job(job, job.limit_s) for job in jobs]
    finally:
        end_by_force(jobs)


def end_by_force(jobs: Sequence[RunningJob]) -> None:
    """See to it that nothing of these jobs is left."""
    for job in jobs:
        for process in job.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for turn in job.turns:
            turn.close()


def _let_go(job: RunningJob) -> bool:
    """Tell all ranks of a job to go on; not if one is gone."""
    try:
        for turn in job.turns:
            turn.sendall(b".")
    except OSError:
        return False
    return True


def _all_wait(job: RunningJob) -> bool:
    """Whether all ranks come to wait for their next turn; not as soon as one is gone, or late."""
    deadline = time.monotonic() + job.limit_s
    with selectors.DefaultSelector() as working:
        for turn in job.turns:
            working.register(turn, selectors.EVENT_READ)
        while working.get_map():
            answered = working.select(max(0.0, deadline - time.monotonic()))
            if not answered:
                return False
            for key, _ in answered:
                try:
                    if not job.turns[job.turns.index(key.fileobj)].recv(1):
                        return False
                except OSError:
                    return False
                working.unregister(key.fileobj)
    return True


def _what_happened(failed: RunningJob, others: Sequence[RunningJob]) -> JobError:
    """Ends all jobs; says how the ranks of the failed one ended."""
    end_by_force(others)
    try:
        end_job(failed, LAST_WORDS_S)
    except JobError as error:
        return JobError(f"{failed.folder.name}: {error}")
    return JobError(f"{failed.folder.name}: a rank did not take its turn")
