"""Names of the variables by which a table, or a shell, decides what NCCL runs.

Apart from everything that needs packages: benches import it into whatever Python a job has.
"""

from __future__ import annotations

PLUGIN_VARIABLE = "NCCL_TUNER_PLUGIN"
OVERRULING = ("NCCL_ALGO", "NCCL_PROTO")
"""Exclude configurations from the search, and from every job that inherits them."""
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
"""What the search tries out itself, `tuccl.trials.presets.KNOBS` included, or what bounds it."""
