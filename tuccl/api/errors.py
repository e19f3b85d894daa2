"""Errors of the Python interface: one root to catch, three subjects below it.

TucclError
├── MachineError   a machine or a sketch of it cannot be used: `ProbeError`, `SketchError`
├── ScheduleError  a schedule cannot be made, read or written: `SynthesisError`
├── TableError     a table cannot be read or written: `lookup_tables.errors.TableError`
└── UsageError, WorkspaceError, MeasurementError, ...: see `tuccl.errors`

Each package has its own root, because it can be used alone. The interface raises one of these with
the same message; the package's own error is its `__cause__`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from lookup_tables import errors as tables
from probes.errors import ProbeError
from sketches.errors import SketchError
from synthesizer.errors import SimulatorMissingError, SynthesisError
from tuccl.errors import TucclError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class MachineError(TucclError):
    """A machine cannot be probed, read, written or used; the message says why and what to do."""


class ScheduleError(TucclError):
    """A schedule cannot be made, read, written or simulated."""


class TableError(TucclError):
    """A table or bundle cannot be read or written."""


def with_one_root(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return the function with all its errors raised as `TucclError`s."""

    @wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except (ProbeError, SketchError) as error:
            raise MachineError(str(error)) from error
        except (SynthesisError, SimulatorMissingError) as error:
            raise ScheduleError(str(error)) from error
        except tables.TableError as error:
            raise TableError(str(error)) from error

    return called
