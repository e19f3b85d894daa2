"""Reported tables without a workspace, and pages read back, for the tests of the report."""

from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

from lookup_tables.table import Shape, StoredSchedule
from tests.sketches.machines import cluster
from tests.tuccl.shipping.bench.shipped_tables import placed_pairs
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.views.page.place import ReportedTable

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
_VOID = {"meta", "input"}


def reported(
    shape: Shape = FOUR_GPUS, backend: str = "nccl,executor", *, has_executor: bool = True
) -> ReportedTable:
    """The table of `tuned`, as a workspace would have it, but without a machine and samples."""
    table, report = tuned(shape, backend)
    return ReportedTable(
        "workspace",
        Path("/workspace"),
        table,
        has_executor,
        tuned_at="2026-01-02T03:04:05Z",
        report=report,
    )


def with_placements(found: ReportedTable) -> ReportedTable:
    """The same table with all_gather entries for neighbours and for pairs two apart."""
    placements = tuple(placed_pairs((8,), (4,)))
    return replace(found, table=replace(found.table, placements=placements))


WHOLE, NODE, RAIL = Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1)


def of_three_shapes() -> ReportedTable:
    """The keys of `tuned` on two nodes of two GPUs, for three shapes; node alone has entries."""
    table, report = tuned(NODE)
    shapes = {"whole": WHOLE, "node": NODE, "rail": RAIL}
    slower = {WHOLE: 4.0, NODE: 1.0, RAIL: 2.0}
    keys = [
        key.model_copy(
            update={"shape": shape, "stock_us": slower[shape] * key.stock_us}
            | ({} if shape == NODE else {"builtin": None, "schedule": None})
        )
        for shape in shapes.values()
        for key in report.keys
    ]
    report = report.model_copy(update={"keys": keys, "shapes": shapes})
    machine = cluster(2, 2, 2)
    return replace(reported(), table=table, report=report, machine=machine)


def hostile() -> ReportedTable:
    """The same with markup in every name: of topology, schedule, variable, place and release."""
    stored = StoredSchedule("5a5a", f"all_reduce_{HOSTILE}", "<algo/>")
    table, report = tuned(FOUR_GPUS, "nccl,executor", HOSTILE, {HOSTILE: HOSTILE}, stored)
    entries = tuple(
        replace(
            entry,
            tuned_at=HOSTILE,
            provenance=None
            if entry.provenance is None
            else replace(entry.provenance, tuccl_version=HOSTILE, details=HOSTILE),
        )
        for entry in table.entries
    )
    placements = tuple(replace(own, example=HOSTILE) for own in placed_pairs((8,), (4,)))
    table = replace(table, topology_name=HOSTILE, entries=entries, placements=placements)
    return ReportedTable(
        HOSTILE, Path("/x"), table, has_executor=True, identity=HOSTILE, report=report
    )


@dataclass
class Seen(HTMLParser):
    """Elements and texts of a page, as a browser's parser sees them."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    unclosed: list[str] = field(default_factory=list)
    """Elements that are open."""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.unclosed.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag

    def handle_data(self, data: str) -> None:
        kept = self.scripts if self.unclosed[-1:] == ["script"] else self.texts
        kept.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of all elements of a name."""
        return [attributes for name, attributes in self.tags if name == tag]


def seen(page: str) -> Seen:
    """Parse a page, whose elements have to be closed in their order."""
    found = Seen()
    found.feed(page)
    found.close()
    assert found.unclosed == []
    return found
