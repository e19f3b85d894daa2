"""TuCCL tunes NCCL's collectives for one machine, offline; programs and notebooks import it.

    import tuccl

    machine = tuccl.read_topology("topo.xml")
    result = tuccl.tune(machine, operations="all_reduce")
    print(tuccl.lookup(result.table, "all_reduce", "4M").why)

docs/guide/python.md shows all of it. A name is imported at its first use, so that `import
tuccl` takes no time; `tuccl/__init__.pyi` tells type checkers where they come from.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "tuccl.api.errors": ("MachineError", "ScheduleError", "TableError"),
    "tuccl.api.machines": (
        "Probe",
        "compare",
        "probe",
        "read_topology",
        "write_topology",
    ),
    "tuccl.api.schedules": (
        "Simulation",
        "Synthesis",
        "expert_schedules",
        "read_schedule",
        "simulate",
        "synthesize",
        "verify",
        "write_schedule",
    ),
    "tuccl.api.stages": ("Stage",),
    "tuccl.api.tables": ("Call", "Entry", "Table", "lookup", "read_table"),
    "tuccl.api.tuning": ("TuningResult", "ship", "tune"),
    "tuccl.lookup_tables.confirmation": ("Confirmation",),
    "tuccl.lookup_tables.provenance": ("Provenance",),
    "tuccl.lookup_tables.table": ("BuiltinConfig", "ScheduleConfig", "Shape"),
    "tuccl.probes.topology.graph": ("Topology",),
    "tuccl.synthesizer.ir.algorithm": ("Algorithm",),
    "tuccl.synthesizer.prove.verifier": ("Verdict",),
    "tuccl.errors": ("MeasurementError", "TucclError", "UsageError", "WorkspaceError"),
    "tuccl.shipping.shipment": ("Shipped",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604 - names of strings above


def __getattr__(name: str) -> object:
    """Return a name of the interface, imported at its first use (PEP 562)."""
    if name not in _HOME_OF:
        msg = f"module 'tuccl' has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all names of the interface, imported or not."""
    return sorted({*globals(), *__all__})
