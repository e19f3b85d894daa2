"""Hold the computation beside calls against the time that is asked for, on one GPU.

    check_computation.py

One rank times a call that takes next to nothing beside computation of 10 us to 5 ms, in CUDA graphs
and one by one: the launch should take as long as the computation. Computation goes by whole blocks
of about 25 us, so that short ones take longer. Needs an NVIDIA GPU and NCCL. Exit code 0: from
100 us on each is within 10 %; 1: one is not; 2: it could not be timed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_double
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tuccl.errors import TucclError
from tuccl.measuring.engines.measure_library import (
    GROUP_ID_BYTES,
    TEXT_BYTES,
    MeasureSession,
    NativeCall,
)
from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.runtime import computation_ptx

ASKED_US = (10.0, 30.0, 100.0, 300.0, 1000.0, 5000.0)
HELD_FROM_US = 100.0
MOST_APART = 0.1
ALL_REDUCE, FLOAT16, SIZE_BYTES, CALLS, LAUNCHES = 4, 6, 1 << 16, 20, 5


def joined() -> MeasureSession:
    """Return a session of one rank on the first GPU, with the computation ready.

    Raises:
        TucclError: There is no GPU or no NCCL.
    """
    session = MeasureSession()
    session.call("load", os.fsencode(find_nccl().path))
    group_id = ctypes.create_string_buffer(GROUP_ID_BYTES)
    session.call("unique_id", group_id)
    name = ctypes.create_string_buffer(TEXT_BYTES)
    session.call("take_gpu", 0, name, TEXT_BYTES)
    session.call("join", 1, 0, group_id)
    session.call("prepare_graphs")
    session.call("prepare_computation", computation_ptx())
    print(name.value.decode())
    return session


def time_us(session: MeasureSession, computation_us: float, *, graph: bool) -> float:
    """Return the median time of a call beside so much computation."""
    call = NativeCall(
        size_bytes=SIZE_BYTES,
        operation=ALL_REDUCE,
        data_type=FLOAT16,
        use_graph=int(graph),
        calls=CALLS,
        computation_us=computation_us,
    )
    session.call("prepare", byref(call))
    times_us = (c_double * LAUNCHES)()
    session.call("time", byref(call), LAUNCHES, times_us)
    return float(median(times_us))


def main() -> int:
    """Print a line for each time that is asked for and return the exit code."""
    code = 0
    try:
        session = joined()
        print("asked, us   in a graph   one by one")
        for asked_us in (0.0, *ASKED_US):
            found = [time_us(session, asked_us, graph=graph) for graph in (True, False)]
            print(f"{asked_us:9.0f}   {found[0]:10.1f}   {found[1]:10.1f}")
            if asked_us >= HELD_FROM_US:
                apart = max(abs(each / asked_us - 1.0) for each in found)
                code = max(code, 1 if apart > MOST_APART else 0)
        session.close()
    except TucclError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
