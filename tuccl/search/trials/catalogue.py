"""The catalogue of NCCL's variables: which a run may vary, with which values, and where.

`nccl_variables.toml` beside this module is the catalogue; a site's file has the same form. The page
of variables is made from it, and so are the process profiles that a run races.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from probes.inputs.messages import first_fault
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError, UsageError
from tuccl.search.trials.config import AXIS_VARIABLES, Settings
from tuccl.search.trials.space import Knob, Scope

SHIPPED = Path(__file__).with_name("nccl_variables.toml")
FORMAT = "tuccl-nccl-variables"
_NAME = re.compile(r"NCCL_[A-Z0-9_]{1,60}", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9_.:,;/|^=+-]{1,200}", re.ASCII)
_VERSION = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}", re.ASCII)
_MOST_VALUES = 16


class Place(StrEnum):
    """A property of machines on which a variable can matter."""

    NODES = "several nodes"
    NICS = "several NICs"
    INFINIBAND = "ib"
    ROCE = "roce"
    TCP = "tcp"
    PCIE = "pcie"
    MULTICAST = "multicast"
    """NVSwitches that reduce and multicast for NVLS, and its trees across nodes."""
    SUMMING = "network that sums"
    """Switches that sum, as those with SHARP, and a network plugin of NCCL for them."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that a run may vary."""

    name: str
    values: tuple[str, ...]
    """In order of effect, without NCCL's own."""
    own: int | None = None
    """The number that NCCL takes by itself; None: unknown, before all values."""
    between: tuple[int, ...] = ()
    """Further values, which are tried beside the best."""
    beside: Settings = ()
    """Variables that are set with every value."""
    scope: Scope = Scope.PROCESS
    """What has the value: all of a process, or a communicator, as `ncclConfig_t` can say."""
    places: frozenset[Place] = frozenset()
    """Machines on which it can matter, one of these; empty: all."""
    is_tried: bool = True
    """Whether `init` turns it without being asked."""
    comes_first: bool = False
    """Whether it is turned before threads, buffers and channels."""
    since: str = ""
    """First NCCL that has it; empty: all that TuCCL serves."""
    gone: str = ""
    """First NCCL without it; empty: all later ones have it."""
    does: str = ""
    risk: str = ""
    source: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All variables that it sets, its own first."""
        return (self.name, *dict(self.beside))

    @property
    def knob(self) -> Knob:
        """Its values, NCCL's own at its place."""
        turned = [self._set(value) for value in self.values]
        before = 0 if self.own is None else sum(int(value) < self.own for value in self.values)
        between = tuple(self._set(str(value)) for value in self.between)
        values = (*turned[:before], (), *turned[before:])
        return Knob(values, between, comes_first=self.comes_first)

    def matters(self, places: Collection[Place], nccl: str) -> bool:
        """Whether it can matter on such a machine with this NCCL; an empty version has all."""
        if self.places and not self.places & set(places):
            return False
        return not self.lacks(nccl)

    def lacks(self, nccl: str) -> str:
        """Return why an NCCL has no such variable; empty if it has, as the empty version has."""
        if nccl and _numbers(nccl) < _numbers(self.since):
            return f"came with {self.since}"
        if nccl and self.gone and _numbers(nccl) >= _numbers(self.gone):
            return f"went with {self.gone}"
        return ""

    def _set(self, value: str) -> Settings:
        return tuple(sorted(((self.name, value), *self.beside)))


@dataclass(frozen=True, slots=True)
class Refused:
    """Variables that no run varies, for one reason."""

    names: tuple[str, ...]
    """A `*` stands for any characters."""
    why: str
    is_settable: bool = False
    """Whether a site may set them for all of a run."""


@dataclass(frozen=True)
class Catalogue:
    """Variables by name."""

    variables: tuple[Variable, ...]
    refused: tuple[Refused, ...] = field(default=())

    def named(self, name: str) -> Variable | None:
        """The variable of this name, if it has one."""
        return next((each for each in self.variables if each.name == name), None)

    def companions(self, name: str) -> Settings:
        """What is set with each value of a variable, without which it has no effect.

        Of one that is set with another's values, the other's first.
        """
        for each in self.variables:
            if each.name == name:
                return each.beside
            if name in dict(each.beside):
                return ((each.name, each.values[0]),)
        return ()

    def require_varied(self, name: str, option: str) -> None:
        """Require a variable that may be varied.

        Raises:
            UsageError: It is refused.
        """
        found = self._refusal(name)
        if found is not None:
            instead = f"; --set {name}=VALUE sets it for the whole run" * found.is_settable
            raise UsageError(f"{option}: {name} is not varied, because {found.why}{instead}")

    def require_settable(self, name: str, option: str) -> None:
        """Require a variable that a site may set.

        Raises:
            UsageError: TuCCL sets it itself, or it overrules tables.
        """
        found = self._refusal(name)
        if found is not None and not found.is_settable:
            raise UsageError(f"{option}: {name} cannot be set, because {found.why}")

    def _refusal(self, name: str) -> Refused | None:
        return next(
            (r for r in self.refused if any(fnmatchcase(name, each) for each in r.names)), None
        )


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Variable(_Form):
    name: StrictStr
    values: list[StrictInt | StrictStr] = Field(min_length=1, max_length=_MOST_VALUES)
    own: StrictInt | None = None
    between: list[StrictInt] = Field(default=[], max_length=_MOST_VALUES)
    beside: dict[str, StrictInt | StrictStr] = Field(default={}, alias="with")
    scope: Literal["process", "communicator"] = "process"
    where: list[Place] = []
    tried: bool = True
    first: bool = False
    since: StrictStr = ""
    gone: StrictStr = ""
    does: StrictStr = ""
    risk: StrictStr = ""
    source: StrictStr = ""


class _Refused(_Form):
    names: list[StrictStr]
    why: StrictStr
    settable: bool = False


class _File(_Form):
    format: Literal["tuccl-nccl-variables"]
    version: Literal[1]
    variable: list[_Variable] = Field(default=[], max_length=64)
    refused: list[_Refused] = []


def read_catalogue(path: Path) -> Catalogue:
    """Read a file of variables.

    Raises:
        InputFileError: It cannot be read, or is no such file.
    """
    try:
        given = _File.model_validate(tomllib.loads(read_regular_file(path).decode()))
        variables = tuple(_variable(each) for each in given.variable)
        _require_unlike([each.name for each in variables])
        refused = tuple(
            Refused(tuple(each.names), each.why, each.settable) for each in given.refused
        )
    except OSError as error:
        raise InputFileError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise InputFileError(f"{path}: {first_fault(error)}") from error
    except ValueError as error:
        raise InputFileError(f"{path}: {error}") from error
    return Catalogue(variables, refused)


@cache
def shipped_catalogue() -> Catalogue:
    """Return the catalogue of this release."""
    return read_catalogue(SHIPPED)


@cache
def multicast_variables() -> frozenset[str]:
    """Return the variables that matter only where NCCL allows NVLS or its trees."""
    found = shipped_catalogue().variables
    return frozenset(each.name for each in found if each.places == {Place.MULTICAST})


def axis_knobs() -> tuple[Knob, ...]:
    """Return the knobs that are axes of every space of NCCL's settings."""
    return tuple(v.knob for v in shipped_catalogue().variables if v.name in AXIS_VARIABLES.values())


def parsed_setting(text: str, option: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`.

    Raises:
        UsageError: The name is not a variable of NCCL, or the value has other characters.
    """
    name, given, value = text.partition("=")
    try:
        _require_name(name)
        _require_value(value if given else "")
    except ValueError as error:
        raise UsageError(f"{option} {text!a:.80}: {error}") from error
    return name, value


def varied(text: str, known: Catalogue, option: str) -> Variable:
    """Parse `NAME=V1,V2,...`; what else is known of the variable is the catalogue's.

    Raises:
        UsageError: It is none, or the catalogue refuses it.
    """
    name, values = parsed_setting(text, option)
    known.require_varied(name, option)
    found = known.named(name)
    try:
        return _variable(
            _Variable.model_validate(
                {
                    "name": name,
                    "values": values.split(","),
                    "own": None if found is None else found.own,
                    "scope": Scope.PROCESS if found is None else found.scope,
                    "since": "" if found is None else found.since,
                    "gone": "" if found is None else found.gone,
                    "with": dict(known.companions(name)),
                }
            )
        )
    except (ValidationError, ValueError) as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else str(error)
        raise UsageError(f"{option} {text!a:.80}: {fault}") from error


def _variable(given: _Variable) -> Variable:
    """Return a checked variable.

    Raises:
        ValueError: It cannot be.
    """
    _require_name(given.name)
    values = tuple(map(str, given.values))
    for value in (*values, *map(str, given.beside.values())):
        _require_value(value)
    for name in given.beside:
        _require_name(name)
    numbers = all(re.fullmatch(r"[0-9]{1,15}", value) for value in values)
    is_axis = given.name in AXIS_VARIABLES.values()
    if len(set(values)) < len(values):
        raise ValueError(f"{given.name}: a value stands twice")
    if (given.own is not None or is_axis) and not numbers:
        raise ValueError(f"{given.name}: only whole numbers have their place beside NCCL's own")
    if given.between and given.name != AXIS_VARIABLES["min_nchannels"]:
        raise ValueError(f"{given.name}: only channels have values between; list all values")
    if is_axis and given.first:
        raise ValueError(f"{given.name}: only further variables come first")
    if is_axis and (given.beside or "0" in values):
        raise ValueError(f"{given.name}: it takes numbers above 0, and nothing beside them")
    for key, version in (("since", given.since), ("gone", given.gone)):
        if version and not _VERSION.fullmatch(version):
            raise ValueError(f"{given.name}: {key} {version!a:.20} is not a version like 2.27")
    return Variable(
        name=given.name,
        values=values,
        own=given.own,
        between=tuple(given.between),
        beside=tuple(sorted((name, str(value)) for name, value in given.beside.items())),
        scope=Scope(given.scope),
        places=frozenset(given.where),
        is_tried=given.tried,
        comes_first=given.first,
        since=given.since,
        gone=given.gone,
        does=given.does,
        risk=given.risk,
        source=given.source,
    )


def _require_unlike(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{name} stands twice")
        seen.add(name)


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!a:.40} is not a variable of NCCL: use NCCL_ and capitals")


def _require_value(value: str) -> None:
    if not _VALUE.fullmatch(value):
        raise ValueError(
            f"value {value!a:.40}: use letters, digits and .:,;/|^=+-_, without spaces"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
