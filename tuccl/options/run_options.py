"""`RunOptions`: the options of `tuccl init` and `tuccl tune`, which run.json keeps.

An option is a field here, with its help: the command line makes its parameters from the fields,
run.json is written and read by them, and the settings and the backend's request carry all of them.
The identity of a run has those that count. An option that is not given is None; its default is
decided where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import (
    LABORATORY,
    MEASURING,
    SCOPE,
    SEARCH,
    Option,
    counted,
    file_name,
    metadata,
    option,
)

NCCL = "nccl"
NCCL_AND_EXECUTOR = "nccl,executor"
REPLAY = "replay"
SIMULATED = "simulated"
IN_PLACE = metadata(Option(MEASURING, "Time calls whose send and receive buffers are the same."))
SHARE_GPUS = metadata(Option(LABORATORY, "Each faked node has all of these GPUs, through MPS."))


@dataclass(frozen=True)
class RunOptions(MachineOptions):
    """The options of a run, by their names in run.json."""

    fake_nodes: bool = option(
        LABORATORY, "Let this host's GPUs appear as those --nodes.", default=False
    )
    share_gpus: bool = field(default=False, metadata=SHARE_GPUS)
    operations: str | None = option(
        SCOPE,
        "As nccl-tests names them; if not given, all of the record, or "
        "all_reduce,all_gather,reduce_scatter. `init` takes alltoall where it searches "
        "schedules.",
        "OP,...",
        default=None,
        counts=False,
    )
    min_size: str | None = option(
        SCOPE, "Smallest size, as 1K; the record's, or 1K.", "SIZE", default=None, counts=False
    )
    max_size: str | None = option(
        SCOPE, "Largest size, as 1G; the record's, or 1G.", "SIZE", default=None, counts=False
    )
    step: int | None = option(
        SCOPE,
        "Factor from one size to the next; if not given 4, and sizes are added where NCCL's own "
        "choice changes.",
        "FACTOR",
        default=None,
        counts=False,
    )
    shapes: str | None = option(
        SCOPE,
        "Communicators that jobs use: whole, the GPUs of a node, those along a rail, pairs of "
        "neighbours, or ranks and nodes, as 16x8; if not given whole, on several nodes with node "
        "and rail, on one with pairs, where --budget is long enough.",
        "SHAPE,...",
        default=None,
        counts=False,
    )
    workload: str | None = option(
        SCOPE,
        "The collectives of a job, as `tuccl workload` writes them: their operations, sizes "
        "and communicators are tuned, and count by the time that they take.",
        "FILE.json",
        default=None,
        parse=file_name,
        counts=False,
    )
    backend: str | None = option(
        MEASURING,
        "nccl, simulated, replay, executor, nccl,executor or sockets; if not given, "
        "replay where there are --records, on this host's GPUs where no MACHINE is given nccl, "
        "or nccl,executor where schedules are searched and the executor is compiled, else "
        "simulated.",
        "NAME",
        default=None,
        counts=False,
    )
    """Backend; a host's default (`tuccl.api.default_backend`) is set before a run begins."""
    records: str | None = option(
        MEASURING,
        "Record for --backend replay: Parquet that --record wrote, or a grid as CSV.",
        "FILE",
        default=None,
        parse=file_name,
        counts=False,
    )
    model: str | None = option(
        MEASURING,
        "Constants of --backend simulated, as `tuccl calibrate` writes them.",
        "FILE.json",
        default=None,
        parse=file_name,
        counts=False,
    )
    schedules: bool = True
    """Whether schedules are searched too, where the backend has an executor: `init` does."""
    own_schedules: str | None = option(
        SEARCH,
        "Schedules of your own, as MSCCL XML or in the schedule language, that are proved and "
        "searched beside those that are made.",
        "DIR",
        default=None,
        names=("--schedules",),
        parse=file_name,
        counts=False,
    )
    baseline: str | None = option(
        SEARCH,
        "A tuner's CSV, as NCCL's example tuner or RCCL reads it, or a tuner's library, whose "
        "choices are tried first and proved like all others.",
        "FILE",
        default=None,
        parse=file_name,
        counts=False,
    )
    strategy: str = option(
        SEARCH,
        "How single keys are searched: mraco, algorithm-1, optuna-hyperband, tpe, coordinate, "
        "random, grid.",
        "NAME",
        default="mraco",
    )
    vary: tuple[str, ...] = option(
        SEARCH,
        "A variable of NCCL that process profiles vary, with its values in order of effect, as "
        "NCCL_IB_QPS_PER_CONNECTION=1,2,4,8; repeatable.",
        "NAME=V1,V2,...",
        default=(),
        counts=False,
    )
    knobs: str | None = option(
        SEARCH,
        "Further variables to vary, in the form of TuCCL's own catalogue.",
        "FILE.toml",
        default=None,
        parse=file_name,
        counts=False,
    )
    budget: str | None = option(
        SEARCH,
        "Machine time for measuring, as 30s, 20m, 2h; if not given, as long as the search "
        "finds something.",
        "TIME",
        default=None,
        counts=False,
    )
    floor: str | None = option(
        SEARCH,
        "Least share of stock NCCL's speed that a process profile leaves every key, or none; "
        "0.99 if not given, 0.9 with --workload.",
        "RATIO",
        default=None,
        counts=False,
    )
    weights: str | None = option(
        SEARCH,
        "Weights of operations in the choice of the process profile, as all_reduce=3, and of "
        "--shapes, as rail=2, in the division of the budget, too; 1 if not given.",
        "NAME=W,...",
        default=None,
        counts=False,
    )
    plain: bool = option(
        MEASURING,
        "Time calls one by one, for jobs that make them outside of CUDA graphs.",
        default=False,
        counts=False,
    )
    set_variables: tuple[str, ...] = option(
        MEASURING,
        "A variable of NCCL that every process has, stock NCCL's too, as the jobs of this site "
        "set it; repeatable.",
        "NAME=VALUE",
        default=(),
        names=("--set",),
        counts=False,
    )
    in_place: bool = field(default=False, metadata=IN_PLACE)
    invariant: bool = option(
        SCOPE,
        "Make a table whose sums do not move: an element's result depends on the ranks' values "
        "alone, not on size, place, graph or start.",
        default=False,
    )
    alone: bool = option(
        MEASURING,
        "Time no call beside computation, neither those of a workload that states what the GPU "
        "computes, nor the largest ones of the whole table.",
        default=False,
    )
    max_channels: int | None = option(
        SEARCH,
        "Most channels that an entry asks NCCL for, and thread blocks of a schedule's kernel, "
        "for jobs that compute meanwhile; NCCL's own choice stays as it is.",
        "N",
        default=None,
        bounds=(1, 64),
    )
    seed: int = option(SEARCH, "Seed of search and simulated noise.", "N", default=0)
    cycles: int = option(
        SEARCH,
        "Greatest number of passes of a search; it may stop by itself from the third on.",
        "N",
        default=1,
        bounds=(1, 100),
    )
    """Greatest number of passes; the stopping rule needs three to decide."""

    @property
    def limits(self) -> dict[str, int]:
        """The limits of the search that were given, by option."""
        unlimited = {field.name for field in fields(self) if field.default is None}
        return {
            f"--{name.replace('_', '-')}": value
            for name, value in counted(self, SEARCH).items()
            if name in unlimited and value is not None
        }

    @property
    def backend_name(self) -> str:
        """The backend that measures."""
        if self.backend is not None:
            return self.backend
        return REPLAY if self.records is not None else SIMULATED

    @property
    def takes_one_gpu(self) -> bool:
        """Whether a host with one GPU can be tuned: several nodes have one each, or ranks share."""
        return self.nodes > 1 or (self.share_gpus and self.node_gpus is not None)

    @property
    def has_machine(self) -> bool:
        """Whether the machine is known without probing."""
        return self.topology is not None or self.records is not None
