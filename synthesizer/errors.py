"""Errors of `synthesizer`: one type per cause, each message says what, where and what to do.

SynthesisError
├── AlgorithmFileError   a schedule file cannot be read
├── DefectError          the verifier found a defect
├── ExportError          a schedule cannot be expressed in a format
├── InfeasibleError      no schedule exists under the given sketch
├── ProgramError         an algorithm written in the builder breaks its rules
└── SolverError          the solver is missing or gave nothing usable

`SimulatorMissingError` is not a `SynthesisError`: the installation is broken, not the request.
"""


class SynthesisError(Exception):
    """Base class of the errors that `synthesizer` raises."""


class AlgorithmFileError(SynthesisError):
    """A schedule file is unreadable or malformed."""


class DefectError(SynthesisError):
    """The verifier found a defect in a schedule that must be right."""


class ExportError(SynthesisError):
    """A schedule cannot be expressed in the requested format."""


class InfeasibleError(SynthesisError):
    """No schedule exists for this collective on this sketch."""


class ProgramError(SynthesisError):
    """An algorithm written in the builder breaks one of its rules."""


class SimulatorMissingError(Exception):
    """This installation has no compiled simulator."""


class SolverError(SynthesisError):
    """The solver is missing, or stopped without a usable result."""
