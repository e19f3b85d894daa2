"""`Evidence`: whether a table's times were measured with NCCL, modelled, or taken on a stand-in.

Every text that shows a time takes its verbs and its caveat from here: measured times are stated as
facts, modelled ones as expectations of the model.
"""

from __future__ import annotations

from enum import StrEnum

from lookup_tables.provenance import SIMULATED, SOCKETS
from lookup_tables.table import Table


class Evidence(StrEnum):
    """The kind of evidence behind the times of a table."""

    MEASURED = "measured"
    """Times of calls of NCCL, also where a record of them was replayed."""
    MODELLED = "modelled"
    """Times of the simulated backend."""
    STAND_IN = "stand-in"
    """Times of the sockets backend, which moves the data without NCCL and without GPUs."""

    @property
    def caveat(self) -> str:
        """A caveat on the times; empty where they were measured."""
        return _CAVEATS[self]

    @property
    def takes(self) -> str:
        """The verb before a time."""
        return _VERBS[self]

    @property
    def gets(self) -> str:
        """The verb before a speedup."""
        return _GAIN_VERBS[self]

    @property
    def seen(self) -> str:
        """The participle before a size: `measured at 4M`."""
        return _PARTICIPLES[self]


_CAVEATS = {
    Evidence.MEASURED: "",
    Evidence.MODELLED: "Computed by a model, not measured: try it against stock NCCL before "
    "relying on it.",
    Evidence.STAND_IN: "Timed on a stand-in for NCCL: what it chooses means nothing for a job.",
}
_VERBS = {
    Evidence.MEASURED: "takes",
    Evidence.MODELLED: "is expected to take",
    Evidence.STAND_IN: "took on the stand-in",
}
_GAIN_VERBS = {
    Evidence.MEASURED: "is",
    Evidence.MODELLED: "is expected to be",
    Evidence.STAND_IN: "would be, if NCCL were the stand-in,",
}
_PARTICIPLES = {
    Evidence.MEASURED: "measured",
    Evidence.MODELLED: "expected by the model",
    Evidence.STAND_IN: "timed on a stand-in",
}
_BACKENDS = {SIMULATED: Evidence.MODELLED, SOCKETS: Evidence.STAND_IN}


def evidence_of(table: Table, backend: str) -> Evidence:
    """The evidence behind the times of a table.

    Args:
        table: Its entries have the provenance of their times, also where a record was replayed.
        backend: Backend of its run, which decides where the table has no entry.
    """
    provenances = (entry.provenance for entry in table.all_entries)
    backends = {backend, *(found.backend for found in provenances if found is not None)}
    for name, evidence in _BACKENDS.items():
        if name in backends:
            return evidence
    return Evidence.MEASURED


def evidence_of_backend(backend: str) -> Evidence:
    """The evidence behind times of one backend."""
    return _BACKENDS.get(backend, Evidence.MEASURED)
