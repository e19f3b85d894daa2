"""The errors of `programs`: one type per cause, each message says what and why.

NoProgramError        no executor can run a schedule
├── NoCutError        a schedule has no form in stages and rounds
├── PhaseFormError    a phased schedule breaks a rule of the form
├── PhaseProofError   a phased schedule does not compute its operation
├── StagedFormError   a staged schedule breaks a rule of the form
└── StagedProofError  a staged schedule does not compute its operation
NoPlanError           there is no plan of a name
"""


class NoProgramError(Exception):
    """No executor can run a schedule; NCCL serves its calls."""


class NoCutError(NoProgramError):
    """A schedule cannot be cut into stages inside nodes and rounds on the network."""


class PhaseFormError(NoProgramError):
    """A phased schedule breaks a rule of the form: a limit, or the bounds of a buffer."""


class PhaseProofError(NoProgramError):
    """A phased schedule does not compute its operation."""


class StagedFormError(NoProgramError):
    """A staged schedule breaks a rule of the form: a limit, or the bounds of a buffer."""


class StagedProofError(NoProgramError):
    """A staged schedule does not compute its operation."""


class NoPlanError(Exception):
    """There is no plan of this name for these nodes."""
