from lookup_tables.confirmation import Confirmation as Confirmation
from lookup_tables.provenance import Provenance as Provenance
from lookup_tables.table import BuiltinConfig as BuiltinConfig
from lookup_tables.table import ScheduleConfig as ScheduleConfig
from lookup_tables.table import Shape as Shape
from probes.topology.graph import Topology as Topology
from synthesizer.ir.algorithm import Algorithm as Algorithm
from synthesizer.prove.verifier import Verdict as Verdict
from tuccl.api.hosts.probe_options import ProbeOptions as ProbeOptions
from tuccl.api.machines import compare as compare
from tuccl.api.machines import probe as probe
from tuccl.api.machines import read_topology as read_topology
from tuccl.api.machines import write_topology as write_topology
from tuccl.api.measurements import read_bench as read_bench
from tuccl.api.measurements import read_record as read_record
from tuccl.api.schedules import Simulation as Simulation
from tuccl.api.schedules import expert_schedules as expert_schedules
from tuccl.api.schedules import read_schedule as read_schedule
from tuccl.api.schedules import simulate as simulate
from tuccl.api.schedules import synthesize as synthesize
from tuccl.api.schedules import verify as verify
from tuccl.api.schedules import write_schedule as write_schedule
from tuccl.api.stages import Stage as Stage
from tuccl.api.tables import lookup as lookup
from tuccl.api.tables import read_table as read_table
from tuccl.api.tuning import ship as ship
from tuccl.api.tuning import tune as tune
from tuccl.crew.cluster_probe import ProbeResult as ProbeResult
from tuccl.errors import MachineError as MachineError
from tuccl.errors import MeasurementError as MeasurementError
from tuccl.errors import ScheduleError as ScheduleError
from tuccl.errors import TableError as TableError
from tuccl.errors import TucclError as TucclError
from tuccl.errors import UsageError as UsageError
from tuccl.errors import WorkspaceError as WorkspaceError
from tuccl.measuring.records.record import Record as Record
from tuccl.options.run_options import RunOptions as RunOptions
from tuccl.reports.entries import EntryFigures as EntryFigures
from tuccl.reports.explanation import ExplainedCall as ExplainedCall
from tuccl.reports.keys import KeyFigures as KeyFigures
from tuccl.reports.tuning_result import TunedTable as TunedTable
from tuccl.reports.tuning_result import TuningResult as TuningResult
from tuccl.schedules.synthesis_report import Synthesis as Synthesis
from tuccl.shipping.bench.result import BenchResult as BenchResult
from tuccl.shipping.shipment import Shipped as Shipped

PACKAGES: tuple[str, ...]
__version__: str

def foreign_package() -> str: ...

__all__ = [
    "Algorithm",
    "BenchResult",
    "BuiltinConfig",
    "Confirmation",
    "EntryFigures",
    "ExplainedCall",
    "KeyFigures",
    "MachineError",
    "MeasurementError",
    "ProbeOptions",
    "ProbeResult",
    "Provenance",
    "Record",
    "RunOptions",
    "ScheduleConfig",
    "ScheduleError",
    "Shape",
    "Shipped",
    "Simulation",
    "Stage",
    "Synthesis",
    "TableError",
    "Topology",
    "TucclError",
    "TunedTable",
    "TuningResult",
    "UsageError",
    "Verdict",
    "WorkspaceError",
    "__version__",
    "compare",
    "expert_schedules",
    "lookup",
    "probe",
    "read_bench",
    "read_record",
    "read_schedule",
    "read_table",
    "read_topology",
    "ship",
    "simulate",
    "synthesize",
    "tune",
    "verify",
    "write_schedule",
    "write_topology",
]
