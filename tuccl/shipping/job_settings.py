"""`JobSettings`: a shipped table as the fixed variables of a job, for forms without a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.table import Setting, process_profile
from probes.inputs.messages import printable
from tuccl.errors import UsageError
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.runtime.executor_library import PRELOAD_VARIABLE
from tuccl.shipping.locating import bundle_name

_PLAIN = re.compile(r"[A-Za-z0-9_./+,@%=-]+", re.ASCII)
"""Values that mean the same to docker, systemd, Slurm, enroot, NCCL, YAML and shells."""
_MOST_BYTES = 1023
"""Longest value that NCCL keeps of a configuration file (NCCL 2.28, src/misc/param.cc)."""


@dataclass(frozen=True)
class JobSettings:
    """A shipped table, as its forms show it to jobs."""

    topology_name: str
    fingerprint: str
    crc: int
    place: Path
    """Where jobs find the directory."""
    shipped_to: Path
    """Where the directory was shipped to."""
    nccl: str
    """Version of NCCL that was measured; empty: none was."""
    loads_executor: bool
    profile: Mapping[str, str]
    settings: tuple[Setting, ...] = ()
    """As in `Table`."""
    files_crc: int = 0
    """Checksum of all shipped files but those of the Kubernetes form, which name it."""

    @property
    def title(self) -> str:
        """One line that names the table."""
        return f"TuCCL table {self.crc:08x} for {printable(self.topology_name)}"

    @property
    def process_profile(self) -> dict[str, str]:
        """The part of the profile that a job's environment sets."""
        return process_profile(self.profile, self.settings, executor=self.loads_executor)

    def variables(self, form: str) -> dict[str, str]:
        """Return the variables of a job, with paths at `place`.

        Args:
            form: Name of the form, for the message.

        Raises:
            UsageError: A value has characters that readers of the form take for their own.
        """
        found = {
            "NCCL_TUNER_PLUGIN": f"{self.place}/{PLUGIN_NAME}",
            "TUCCL_BUNDLE": f"{self.place}/{bundle_name(self.crc)}",
            "TUCCL_BUNDLE_CRC": f"{self.crc:08x}",
            **({"TUCCL_NCCL": self.nccl} if self.nccl else {}),
            **self.process_profile,
        }
        if self.loads_executor:
            found[PRELOAD_VARIABLE] = f"{self.place}/{EXECUTOR_NAME}"
        for name, value in found.items():
            if not _PLAIN.fullmatch(value) or len(value) > _MOST_BYTES:
                raise UsageError(
                    f"{name}={value!a:.120} cannot stand in the form {form}, whose readers quote "
                    "nothing: name a place of letters, digits and _./+,@%=- with --at"
                )
        return found
