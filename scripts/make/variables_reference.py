"""The page of NCCL's variables, made from the catalogue of this release."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.search.trials.catalogue import FORMAT, Place, Variable, shipped_catalogue

HEAD = """\
# NCCL variables that your cluster has

What `tuccl init` turns by itself on which machine, how to add what your site knows, and what it
refuses. A variable holds for a whole process, so the values that win are the table's process
profile, one for all of its keys; `tuccl.env` sets them.

    tuccl init --vary NCCL_IB_QPS_PER_CONNECTION=1,2,4,8 --vary NCCL_CROSS_NIC=0,1
    tuccl init --knobs site.toml
    tuccl init --set NCCL_IB_TC=106

- **What is tried.** Variables of `--vary` and `--knobs` first, then those below that can matter
  on this machine with its NCCL; threads, buffers and channels before the others. Each is turned
  alone, its last and first value before those between; then the ones that gain are set together.
  Each profile takes a start of all ranks; `--budget` bounds them.
- **What is taken.** A variable has to gain 0.5 % over all keys, and again in 3 to 5 fresh starts
  with and without it in turn. NCCL's data are checked for every key before a profile may lead,
  and the guaranteed minimum (`--floor`) holds for every key.
- **What is told.** The table names the profile, `report.json` the faster ones that were not used
  and why, `tuccl explain` what a call gains by it, `tuccl doctor` whether a job sets it.
- **The base.** What this site's jobs set anyhow is what "stock NCCL" means: variables of the shell
  and of NCCL's configuration files, and those of `--set`. The run, the manifest and the report
  record them, and `tuccl doctor` names those in which a job differs. `--set` is for what jobs have
  and this shell has not. `init` varies nothing that the site sets, unless `--vary` names it.
- **A refusal** is one line with exit code 2: the variable's name and why.
"""
FILE = f"""\
## A site's file

`--knobs FILE.toml` takes the form of the catalogue. `name` and `values` are needed; variables of
the catalogue are replaced.

```toml
format = "{FORMAT}"
version = 1

[[variable]]
name = "NCCL_IB_QPS_PER_CONNECTION"
values = [1, 2, 4, 8]            # in order of effect
own = 1                          # NCCL's own, which has its place among them; else it comes first
with = {{ NCCL_IB_SPLIT_DATA_ON_QPS = 1 }}   # set beside every value
where = ["ib", "roce"]           # one of: {", ".join(Place)}; nothing: everywhere
since = "2.10"                   # NCCL
scope = "process"                # or "communicator"
does = "Queue pairs of a connection."
risk = "..."
source = "..."
```

"""


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
    parts += ["## What is not varied\n\n| variable | because | `--set` |\n|---|---|---|\n"]
    for each in shown.refused:
        parts.append(f"| `{each.name}` | {each.why} | {'yes' if each.is_settable else 'no'} |\n")
    return "".join([*parts, "\n", FILE.rstrip(), "\n"])
