"""The forms of a schedule: its collective, program, MSCCL-IR with its limits, graph on a sketch."""
