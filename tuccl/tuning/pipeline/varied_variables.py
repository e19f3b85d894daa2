"""The variables of NCCL that a run varies, and those that a site sets for all of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from lookup_tables.provenance import SIMULATED
from probes.inputs.messages import listed
from probes.topology.graph import Topology
from tuccl.errors import InputFileError, UsageError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.measuring.engines.nccl_environment import site_variables
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.models.figures import Fabric, machine_figures, uses_sockets
from tuccl.models.nccl_choice import MODELLED_SETTINGS
from tuccl.options.run_options import RunOptions
from tuccl.search.trials.catalogue import (
    Place,
    Variable,
    parsed_setting,
    read_catalogue,
    shipped_catalogue,
    varied,
)
from tuccl.search.trials.config import AXIS_VARIABLES, Settings
from tuccl.search.trials.space import Knob


def base_of(options: RunOptions, environment: Mapping[str, str]) -> Settings | None:
    """Return the variables that every process of a run has, stock NCCL's too, sorted.

    They are those of the site, in its shell and NCCL's configuration files, and those of `--set`;
    in the model those of `--set`. None if there are none and nothing is measured.

    Raises:
        UsageError: As `set_variables`.
    """
    kind = backend_kind(options.backend_name)
    site = site_variables(environment) if kind.measures_nccl else {}
    found = tuple(sorted((site | dict(set_variables(options))).items()))
    return found if found or kind.has_workers else None


def not_modelled_note(options: RunOptions, environment: Mapping[str, str]) -> str:
    """Return a note on the site's variables that the model does not know; empty without them."""
    names = sorted(site_variables(environment))
    if options.backend_name != SIMULATED or not names:
        return ""
    return (
        f"set here, and not in the model: {listed(names)}; the table says nothing of jobs with "
        f"{'it' if len(names) == 1 else 'them'}"
    )


def set_variables(options: RunOptions) -> Settings:
    """Return the variables of `--set`, sorted.

    Raises:
        UsageError: One cannot be set, or twice; or the backend measures nothing.
    """
    found = _of_set(options)
    if options.backend_name != SIMULATED and found:
        _require_workers(options, "--set")
    elif unknown := [each for each in found.items() if each not in MODELLED_SETTINGS]:
        known = " and ".join(f"{name}={value}" for name, value in sorted(MODELLED_SETTINGS))
        name, value = unknown[0]
        raise UsageError(
            f"--set {f'{name}={value}'!a:.80}: --backend {SIMULATED} knows no variables of NCCL "
            f"but {known}"
        )
    return tuple(sorted(found.items()))


def asked_variables(options: RunOptions) -> tuple[tuple[Variable, ...], tuple[Variable, ...]]:
    """Return the variables of `--vary`, and those of the file of `--knobs`.

    What is wrong with any backend is said first.

    Raises:
        UsageError: One is refused, named twice, or set by `--set`; or the backend measures nothing.
        InputFileError: The file cannot be read, or is no such file.
    """
    base = _of_set(options)
    by_name = tuple(varied(text, shipped_catalogue(), "--vary") for text in options.vary)
    of_file = () if options.knobs is None else _of_file(Path(options.knobs))
    names = [name for each in (*by_name, *of_file) for name in each.names]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is varied twice by --vary and --knobs: name it once")
        if name in base:
            raise UsageError(f"{name} is set by --set, so it is not varied: leave one of them out")
    set_variables(options)
    if options.knobs is not None:
        _require_tuned(options, "--knobs")
    if by_name:
        _require_tuned(options, "--vary")
    return by_name, of_file


def _of_set(options: RunOptions) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in options.set_variables:
        name, value = parsed_setting(text, "--set")
        shipped_catalogue().require_settable(name, "--set")
        if name in found:
            raise UsageError(f"--set {text!a:.80}: {name} is set twice")
        found[name] = value
    return found


def _of_file(path: Path) -> tuple[Variable, ...]:
    given = read_catalogue(path)
    if given.refused:
        raise InputFileError(f"{path}: only the catalogue itself refuses variables")
    for each in given.variables:
        for name in each.names:
            shipped_catalogue().require_varied(name, f"--knobs {path}")
    return given.variables


def _require_workers(options: RunOptions, option: str) -> None:
    if not backend_kind(options.backend_name).has_workers:
        raise UsageError(
            f"{option} is for a backend that measures; --backend {options.backend_name} knows no "
            "variables of NCCL"
        )


def _require_tuned(options: RunOptions, option: str) -> None:
    _require_workers(options, option)
    if not backend_kind(options.backend_name).tunes_nccl:
        raise UsageError(
            f"{option} is for a search of NCCL's settings; --backend {options.backend_name} "
            "searches schedules alone"
        )


def varied_knobs(
    options: RunOptions,
    base: Settings,
    places: Collection[Place],
    nccl: str,
    *,
    shares_gpus: bool = False,
) -> tuple[Knob, ...]:
    """Return the variables that a run turns: what was asked for first, then the catalogue's.

    Of a file and the catalogue only those that can matter on this machine with its NCCL; what the
    site sets is varied only if it was asked for.

    Args:
        options: Options of the run.
        base: Variables of the site.
        places: Properties of the machine.
        nccl: Version of NCCL; empty: unknown.
        shares_gpus: Whether ranks share GPUs, so that there is no room for many channels.

    Raises:
        UsageError: As `asked_variables`; or this NCCL has no variable that `--vary` names.
        InputFileError: As `asked_variables`.
    """
    by_name, of_file = asked_variables(options)
    for each in by_name:
        if why := each.lacks(nccl):
            raise UsageError(f"--vary: NCCL {nccl} has no {each.name}, which {why}")
    taken = {*dict(base), *(name for v in (*by_name, *of_file) for name in v.names)}
    asked = (*by_name, *(each for each in of_file if each.matters(places, nccl)))
    axes = AXIS_VARIABLES.values()
    measures = backend_kind(options.backend_name).measures_nccl
    modelled = dict(MODELLED_SETTINGS) if options.backend_name == SIMULATED else {}
    by_itself = (
        each
        for each in shipped_catalogue().variables
        if taken.isdisjoint(each.names)
        and (
            each.name in axes
            or (
                (measures or each.name in modelled) and each.is_tried and each.matters(places, nccl)
            )
        )
    )
    crowded = AXIS_VARIABLES["min_nchannels"] if shares_gpus else ""
    turned = [replace(each.knob, is_asked=each.name not in axes) for each in asked]
    turned += [each.knob for each in by_itself]
    return tuple(knob for knob in turned if crowded not in knob.variables)


def places_of(
    topology: Topology, laboratory: Laboratory, backend_name: str = ""
) -> Collection[Place]:
    """Return the properties of a machine on which variables depend.

    A topology does not say whether RDMA devices are InfiniBand's: they may be either. The model
    does not know what every network that sums does (`tuccl.models.figures`).
    """
    figures = machine_figures(topology)
    nodes = max(topology.node_count, laboratory.nodes)
    found = {Place.NODES} if nodes > 1 else set()
    if laboratory.nodes > 1 or (nodes > 1 and uses_sockets(topology)):
        found.add(Place.TCP)
    elif nodes > 1:
        found |= {Place.INFINIBAND, Place.ROCE}
    if nodes > 1 and laboratory.nodes <= 1 and figures.nics_per_node > 1:
        found.add(Place.NICS)
    if figures.fabric is Fabric.PCI and topology.node_of_rank.count(0) > 1:
        found.add(Place.PCIE)
    if figures.multicast is not None:
        found.add(Place.MULTICAST)
    sums = nodes > 1 and all(nic.network_sums for nic in topology.nics)
    if sums and laboratory.nodes <= 1 and (figures.summing or backend_name != SIMULATED):
        found.add(Place.SUMMING)
    return frozenset(found)
