"""TuCCL tunes NCCL's collectives for one machine, offline; programs and notebooks import it.

    import tuccl

    machine = tuccl.read_topology("topo.xml")
    result = tuccl.tune(machine, tuccl.RunOptions(operations="all_reduce"))
    print(tuccl.lookup(result, "all_reduce", "4M").why)

docs/guide/python.md shows all of it. A name is imported at its first use, so that `import
tuccl` takes no time; `tuccl/__init__.pyi` tells type checkers where they come from.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

PACKAGES = ("lookup_tables", "probes", "sketches", "synthesizer", "tuccl")
"""The packages of this project, which are installed side by side."""

_HOMES = {
    "tuccl.api.hosts.probe_options": ("ProbeOptions",),
    "tuccl.api.machines": (
        "compare",
        "probe",
        "read_topology",
        "write_topology",
    ),
    "tuccl.api.measurements": ("read_bench", "read_record"),
    "tuccl.api.schedules": (
        "Simulation",
        "expert_schedules",
        "read_schedule",
        "simulate",
        "synthesize",
        "verify",
        "write_schedule",
    ),
    "tuccl.api.stages": ("Stage",),
    "tuccl.api.tables": ("lookup", "read_table"),
    "tuccl.api.tuning": ("ship", "tune"),
    "tuccl.crew.cluster_probe": ("ProbeResult",),
    "lookup_tables.confirmation": ("Confirmation",),
    "lookup_tables.provenance": ("Provenance",),
    "lookup_tables.table": ("BuiltinConfig", "ScheduleConfig", "Shape"),
    "probes.topology.graph": ("Topology",),
    "synthesizer.ir.algorithm": ("Algorithm",),
    "synthesizer.prove.verifier": ("Verdict",),
    "tuccl.options.run_options": ("RunOptions",),
    "tuccl.errors": (
        "MachineError",
        "MeasurementError",
        "ScheduleError",
        "TableError",
        "TucclError",
        "UsageError",
        "WorkspaceError",
    ),
    "tuccl.measuring.records.record": ("Record",),
    "tuccl.reports.entries": ("EntryFigures",),
    "tuccl.reports.explanation": ("ExplainedCall",),
    "tuccl.reports.keys": ("KeyFigures",),
    "tuccl.reports.tuning_result": ("TunedTable", "TuningResult"),
    "tuccl.schedules.synthesis_report": ("Synthesis",),
    "tuccl.shipping.bench.result": ("BenchResult",),
    "tuccl.shipping.shipment": ("Shipped",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604 - names of strings above


def foreign_package() -> str:
    """Return which package of another project hides one of this project's, and what to do.

    The names of `PACKAGES` are common: a folder `probes` in the working directory, on PYTHONPATH or
    installed by another distribution may be imported instead. Empty if nothing is hidden.
    """
    here = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        module = sys.modules.get(name)
        spec = find_spec(name) if module is None else module.__spec__
        places = (spec.submodule_search_locations or ()) if spec else ()
        found = [Path(place).resolve() for place in places]
        if found and here / name not in found:
            return (
                f"the package {name} in {found[0].parent} hides the one of TuCCL: run the command "
                "`tuccl` or `python -P -m tuccl`, take that folder out of PYTHONPATH, or install "
                "TuCCL into an environment of its own"
            )
    return ""


def __getattr__(name: str) -> object:
    """Return a name of the interface, imported at its first use (PEP 562).

    Raises:
        AttributeError: The interface has no such name.
        ImportError: A package of another project hides one of this project's.
    """
    if name not in _HOME_OF:
        msg = f"module 'tuccl' has no attribute {name!r}"
        raise AttributeError(msg)
    if foreign := foreign_package():
        raise ImportError(foreign)
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all names of the interface, imported or not."""
    return sorted({*globals(), *__all__})
