"""The engine of a worker that runs calls as a job does: as its environment says."""

from __future__ import annotations

from tuccl.measuring.engines.executor_engine import ExecutorEngine
from tuccl.measuring.engines.nccl_engine import NcclEngine
from tuccl.runtime.executor_library import is_preloaded


def job_engine() -> NcclEngine:
    """Return an engine with the environment's plugin, and with the executor if it is preloaded.

    Raises:
        EngineError: This installation has no compiled library.
    """
    return (ExecutorEngine if is_preloaded() else NcclEngine)(controlled=False)
