"""The engine of a worker that runs calls as a job does: as its environment says."""

from __future__ import annotations

from tuccl.engines.executor_engine import ExecutorEngine
from tuccl.engines.executor_library import is_preloaded
from tuccl.engines.nccl_engine import NcclEngine


def job_engine() -> NcclEngine:
    """Return an engine with the environment's plugin, and with the executor if it is preloaded.

    Raises:
        EngineError: This installation has no compiled library.
    """
    return (ExecutorEngine if is_preloaded() else NcclEngine)(controlled=False)
