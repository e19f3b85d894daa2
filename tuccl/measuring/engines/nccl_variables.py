"""Names of the variables by which a table or a shell determines NCCL's choices.

The module needs no packages: benches import it into a job's own Python.
"""

from __future__ import annotations

PLUGIN_VARIABLE = "NCCL_TUNER_PLUGIN"
OF_NO_CALL = (
    PLUGIN_VARIABLE,
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_DEBUG",
    "NCCL_GRAPH_DUMP",
    "NCCL_PROFILER",
    "NCCL_RAS_",
    "NCCL_SET_THREAD_NAME",
    "NCCL_TOPO_DUMP",
    "NCCL_VERSION",
)
"""Beginnings of names on which the time of no call depends, or that TuCCL sets itself.

NCCL reads no NCCL_VERSION: NVIDIA's images of CUDA have it as a label of what is installed."""
OVERRULING = ("NCCL_ALGO", "NCCL_PROTO")
"""Variables that exclude configurations from the search and from jobs that inherit them."""
PER_PROCESS = (
    "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_SOCKET_NTHREADS",
)
"""Variables of every machine that the search varies, or that bound it."""
