"""`JobView`: a job that would start here, and the variables that its NCCL would see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundles.bundle import Bundle, load_bundle
from tuccl.errors import TableError
from tuccl.measuring.engines.nccl_environment import seen_variables
from tuccl.measuring.engines.nccl_library import NcclLibrary
from tuccl.runtime import EXECUTOR_NAME
from tuccl.runtime.executor_library import PRELOAD_VARIABLE


@dataclass(frozen=True)
class JobView:
    """A job that would start here."""

    environment: Mapping[str, str]
    """The environment that it starts with."""
    seen: Mapping[str, tuple[str, str]]
    """Value and origin of each variable that NCCL sees: NCCL's configuration files count."""
    bundle: Bundle | None
    """The table; None where there is none, or none that can be read."""
    problem: str
    """Why there is no table."""
    nccl: NcclLibrary | None = None
    """The NCCL that the job would load, where that is known."""
    is_served: bool | None = None
    """Whether the executor gets its calls; None: it does if it is preloaded."""

    def value(self, name: str) -> str:
        """Return a variable's value; empty where it is not set."""
        return self.seen.get(name, ("", ""))[0]

    def place(self, name: str) -> str:
        """Return where a variable is set."""
        return self.seen.get(name, ("", ""))[1]

    @property
    def loads_executor(self) -> bool:
        """Whether the executor gets its calls, as far as that is known."""
        if self.is_served is not None:
            return self.is_served
        names = self.environment.get(PRELOAD_VARIABLE, "").replace(":", " ").split()
        return any(Path(name).name == EXECUTOR_NAME for name in names)

    @property
    def process_profile(self) -> dict[str, str]:
        """The variables of the table's profile that its environment has to set, or sets.

        What the executor sets on communicators may stand there, too.
        """
        if self.bundle is None:
            return {}
        needed = self.bundle.process_profile(executor=self.loads_executor)
        both = self.bundle.profile.items()
        return needed | {name: value for name, value in both if self.value(name)}

    @property
    def bundle_path(self) -> Path | None:
        """The path that TUCCL_BUNDLE names."""
        named = self.value("TUCCL_BUNDLE")
        return Path(named) if named else None


def view_job(environment: Mapping[str, str]) -> JobView:
    """Return the job that would start with an environment, its NCCL not yet looked for."""
    seen = seen_variables(environment)
    named = seen.get("TUCCL_BUNDLE", ("", ""))[0]
    if not named:
        return JobView(environment, seen, None, "TUCCL_BUNDLE names no table")
    try:
        return JobView(environment, seen, load_bundle(Path(named)), "")
    except OSError as error:
        return JobView(environment, seen, None, f"cannot read {named}: {error.strerror}")
    except TableError as error:
        return JobView(environment, seen, None, str(error))
