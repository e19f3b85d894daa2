"""The one error of `programs`, which says what no executor can run of a schedule."""


class NoProgramError(Exception):
    """A schedule is none that an executor can run; NCCL serves its calls."""
