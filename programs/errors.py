"""The error of `programs`."""


class NoProgramError(Exception):
    """No executor can run a schedule; NCCL serves its calls."""
