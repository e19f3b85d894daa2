"""The page of NCCL's variables, made from the catalogue of this release."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.models.nccl_choice import MODELLED_SETTINGS
from tuccl.search.trials.catalogue import FORMAT, Place, Variable, shipped_catalogue

MODELLED = " and ".join(f"`{name}={value}`" for name, value in sorted(MODELLED_SETTINGS))
HEAD = f"""\
# NCCL variables that your cluster has

What `tuccl init` turns by itself on which machine, how to add what your site knows, and what it
refuses, for people who run a cluster. The values that win are the table's process profile, one for
all of its keys. `tuccl.env` sets them for a whole process. Those of a communicator are an
exception: where jobs preload the executor, it sets them on communicators that were measured, and on
no other ([how](executor.md#settings-of-communicators)).

    tuccl init --vary NCCL_IB_QPS_PER_CONNECTION=1,2,4,8 --vary NCCL_CROSS_NIC=0,1
    tuccl init --knobs site.toml
    tuccl init --set NCCL_IB_TC=106

- **What is tried.** Variables of `--vary` and `--knobs` first, then those below that can matter
  on this machine with its NCCL; threads, buffers and channels before the others. Each is turned
  alone, its last and first value before those between; then the ones that gain are set together.
  Each profile takes a start of all ranks; `--budget` bounds them.
- **What is taken.** A variable has to gain 0.5 % over all keys, and again in 3 to 5 fresh starts
  with and without it in turn. NCCL's data are checked for every key before a profile may lead,
  and the guaranteed minimum (`--floor`) holds for every key, and for NCCL's own choice on
  communicators that are not tuned.
- **What is told.** The table names the profile, `init` and `report.json` the faster ones that were
  not used and why, `tuccl explain` what a call gains by it. A job that lacks it is told so once by
  the plugin, and by `tuccl doctor`.
- **The base.** What this site's jobs set anyhow is what "stock NCCL" means: variables of the shell
  and of NCCL's configuration files, and those of `--set`. The run, the manifest and the report
  record them; the plugin and `tuccl doctor` name those in which a job differs. `--set` is for what
  jobs have and this shell has not. `init` varies nothing that the site sets, unless `--vary` or
  `--knobs` names it.
- **Without GPUs** the [model](simulated-backend.md) knows threads, buffers and channels, and of
  the others {MODELLED}.
- **A refusal** is one line with exit code 2: the variable's name and why. Variables that this page
  does not name are a site's own: `--vary` takes them, as `NCCL_IB_TC` and `NCCL_IB_SL`, whose
  values depend on what the fabric does with a class of traffic.
"""
FILE = f"""\
## A site's file

`--knobs FILE.toml` takes the form of the catalogue. `name` and `values` are needed. A variable of
the catalogue's takes its place, and those that cannot matter on the machine are left out.

```toml
format = "{FORMAT}"
version = 1

[[variable]]
name = "NCCL_IB_QPS_PER_CONNECTION"
values = [1, 2, 4, 8]            # in order of effect
own = 1                          # NCCL's own, which has its place among them; else it comes first
with = {{ NCCL_IB_SPLIT_DATA_ON_QPS = 1 }}   # set beside every value
where = ["ib", "roce"]           # one of: {", ".join(Place)}; nothing: everywhere
since = "2.10"                   # the first NCCL that has it
gone = "3.0"                     # the first that has it no more; nothing: none
first = true                     # turned before threads, buffers and channels
scope = "process"                # or "communicator"
does = "Queue pairs of a connection."
risk = "..."
source = "..."
```

"""


PLACES = {
    Place.NODES: "two nodes or more",
    Place.NICS: "several nodes, each with two NICs or more",
    Place.INFINIBAND: "several nodes whose NICs are RDMA devices, as those of InfiniBand; their "
    "names say it (`mlx5_0`), or nothing does",
    Place.ROCE: "the same: a machine's description does not say which of the two it is",
    Place.TCP: "several nodes whose NICs are no RDMA devices by their names (`eth0`), and faked "
    "nodes",
    Place.PCIE: "GPUs of a node that NVLink does not join all",
    Place.MULTICAST: "NVSwitches from Hopper on; not where the driver is known to offer no "
    "multicast, and in the search only where NCCL allows NVLS",
    Place.SUMMING: 'several nodes whose NICs all say `coll="1"`, as NCCL writes its topology with '
    "a network plugin for SHARP (`NCCL_TOPO_DUMP_FILE`); `tuccl probe` does not find it out, so "
    "name the variable by `--vary`",
}
"""What a machine is on which a variable can matter, and how it is known."""


def _places() -> Iterator[str]:
    yield "## Where a variable can matter\n\n| on | what that is |\n|---|---|\n"
    for place in Place:
        yield f"| {place} | {PLACES[place]} |\n"
    yield "\n"


def _section(title: str, variables: list[Variable]) -> Iterator[str]:
    yield f"## {title}\n\n"
    columns = ("variable", "values", "of a", "on", "NCCL", "what it does", "risk", "source")
    yield f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    for each in variables:
        beside = "".join(f", with {name}={value}" for name, value in each.beside)
        between = f"; beside the best {', '.join(map(str, each.between))}" if each.between else ""
        own = "" if each.own is None else f" (own: {each.own})"
        values = f"{', '.join(each.values)}{own}{between}{beside}"
        since = f"{each.since} on" if each.since else "all"
        since += f", before {each.gone}" if each.gone else ""
        places = ", ".join(sorted(each.places)) or "every machine"
        cells = (f"`{each.name}`", values, each.scope, places, since)
        yield f"| {' | '.join((*cells, each.does, each.risk, each.source))} |\n"
    yield "\n"


def page() -> str:
    """The page of this release's catalogue."""
    shown = shipped_catalogue()
    tried = [each for each in shown.variables if each.is_tried]
    asked = [each for each in shown.variables if not each.is_tried]
    parts = [HEAD, "\n", *_section("What `init` turns by itself", tried)]
    parts += _section("What it turns if `--vary` names it", asked)
    parts += _places()
    parts.append("## What is not varied\n\nA `*` stands for any characters.\n\n")
    parts.append("| variable | because | `--set` |\n|---|---|---|\n")
    for each in shown.refused:
        names = ", ".join(f"`{name}`" for name in each.names)
        parts.append(f"| {names} | {each.why} | {'yes' if each.is_settable else 'no'} |\n")
    return "".join([*parts, "\n", FILE.rstrip(), "\n"])
