"""Pictures of the ideas behind TuCCL, for docs/ideas and the README."""

from __future__ import annotations

from svg_drawing import AMBER, INK, LINE, QUIET, RED, TEAL, VIOLET, Drawing

from tuccl.search.strategies.hyperband import hyperband_plan


def overview() -> Drawing:
    """The way of the data from the machine to the job."""
    drawing = Drawing(860, 300, "From the machine to the job: probes, sketches, schedules, table")
    size = (150.0, 62.0)
    drawing.box(20, 30, size, ["The machine", "hosts, or a file"])
    drawing.box(20, 200, size, ["Jobs", "unmodified NCCL"], AMBER)
    steps = [
        (240, ["Topology", "devices, links, speeds"]),
        (450, ["Sketches", "links worth using"]),
        (660, ["Schedules", "made and proved"]),
    ]
    for x, lines in steps:
        drawing.box(x, 30, (160, 62), lines, TEAL)
    drawing.line([(170, 61), (236, 61)], INK, arrow=True)
    drawing.text(203, 52, "probe", "quiet")
    drawing.line([(400, 61), (446, 61)], INK, arrow=True)
    drawing.text(423, 52, "prune", "quiet")
    drawing.line([(610, 61), (656, 61)], INK, arrow=True)
    drawing.text(633, 52, "solve", "quiet")
    drawing.box(
        450, 200, (370, 62), ["Search", "measures NCCL's settings and schedules on the GPUs"], TEAL
    )
    drawing.line([(740, 92), (740, 196)], INK, arrow=True)
    drawing.line([(320, 92), (320, 146), (540, 146), (540, 196)], INK, arrow=True)
    drawing.text(328, 139, "algorithms, protocols, channels, ...", "quiet", "start")
    drawing.box(240, 200, (160, 62), ["Table", "winner per size"], TEAL)
    drawing.line([(450, 231), (404, 231)], INK, arrow=True)
    drawing.line([(240, 231), (174, 231)], AMBER, arrow=True)
    drawing.text(207, 222, "plugin", "quiet")
    note = "Once per machine, offline: everything in green. In the job: one lookup per call."
    drawing.text(20, 288, note, "quiet", "start")
    return drawing


def sketches() -> Drawing:
    """Two nodes with every connection, and what three stages leave of them."""
    drawing = Drawing(860, 300, "Three stages of pruning leave connections along rails")
    for panel, (x, title) in enumerate(
        [
            (20, "Network: any NIC to any NIC"),
            (310, "1, 2: bind GPUs, group NICs"),
            (600, "3: edges between GPUs"),
        ]
    ):
        drawing.text(x + 120, 28, title, "strong")
        for node, top in enumerate((50, 190)):
            for place in range(4):
                left = x + 60.0 * place
                gpu = top if node == 0 else top + 50
                nic = top + 50 if node == 0 else top
                colour = (TEAL, AMBER, VIOLET, RED)[place] if panel else INK
                drawing.box(left, gpu, (48, 28), [f"GPU{place}"], colour)
                if panel < 2:
                    drawing.box(left, nic, (48, 24), [f"NIC{place}"], colour)
                    drawing.line([(left + 24, 78 if node == 0 else 214),
                                  (left + 24, 100 if node == 0 else 240)], LINE)  # fmt: skip
        for a in range(4):
            ends = range(4) if panel == 0 else (a,)
            for b in ends:
                top, bottom = (124, 190) if panel < 2 else (78, 240)
                colour = (TEAL, AMBER, VIOLET, RED)[a] if panel else LINE
                drawing.line([(x + 24 + 60 * a, top), (x + 24 + 60 * b, bottom)], colour,
                             width=2.4 if panel else 1)  # fmt: skip
    drawing.text(430, 292, "Two nodes of four GPUs; links inside the nodes are not drawn.", "quiet")
    return drawing


def packing() -> Drawing:
    """Spanning trees of two chunks, and the load on ports."""
    drawing = Drawing(
        860, 250, "Each chunk spreads along a tree; trees are packed so that ports are even"
    )
    places = {0: (70, 60), 1: (230, 60), 2: (70, 180), 3: (230, 180)}
    for panel, (x, title, trees) in enumerate([
        (0, "One tree: one port is busy", [(TEAL, [(0, 1), (0, 2), (0, 3)])]),
        (290, "Three chunks, three trees", [
            (TEAL, [(0, 1), (1, 2), (2, 3)]), (AMBER, [(0, 2), (2, 3), (3, 1)]),
            (VIOLET, [(0, 3), (3, 1), (1, 2)])]),
    ]):  # fmt: skip
        drawing.text(x + 150, 26, title, "strong")
        for rank, (left, top) in places.items():
            drawing.box(x + left - 28, top - 16, (56, 32), [f"rank {rank}"])
        for number, (colour, hops) in enumerate(trees):
            shift = 7.0 * (number - 1) if panel else 0.0
            for a, b in hops:
                (x1, y1), (x2, y2) = places[a], places[b]
                along = (x2 - x1) ** 2 + (y2 - y1) ** 2
                ux, uy = (x2 - x1) / along**0.5, (y2 - y1) / along**0.5
                near = 32 if abs(ux) > 0.5 else 20
                drawing.line(
                    [(x + x1 + ux * near - uy * shift, y1 + uy * near + ux * shift),
                     (x + x2 - ux * near - uy * shift, y2 - uy * near + ux * shift)],
                    colour, arrow=True,
                )  # fmt: skip
    drawing.text(720, 26, "Bytes that each port sends", "strong")
    for row, (words, loads) in enumerate([
        ("one tree", (3.0, 0.0, 0.0, 0.0)), ("three trees", (1.0, 2 / 3, 2 / 3, 2 / 3)),
    ]):  # fmt: skip
        base = 110 + 105 * row
        for rank, load in enumerate(loads):
            drawing.bar(640 + 45 * rank, base - 22 * load, (26, 22 * load), (AMBER, TEAL)[row])
        drawing.line([(632, base), (815, base)], LINE)
        drawing.text(722, base + 18, words, "quiet")
    return drawing


def hyperband() -> Drawing:
    """The plan of the brackets: configurations against samples."""
    drawing = Drawing(
        860, 260, "Hyperband: many configurations measured a little, few measured much"
    )
    for number, bracket in enumerate(hyperband_plan(27, 3)):
        x = 30 + 210.0 * number
        drawing.text(x + 85, 26, f"bracket {number + 1}", "strong")
        for at, rung in enumerate(bracket.rungs):
            y = 48 + 46 * at
            drawing.bar(x, y, (5.0 * rung.configs, 24), TEAL)
            drawing.text(x + 5 * rung.configs + 6, y + 16,
                         f"{rung.configs} x {rung.repeats}", "quiet", "start")  # fmt: skip
    note = "configurations x samples of each: a bar keeps the better third of the one above it"
    drawing.text(430, 248, note, "quiet")
    return drawing


def minimum() -> Drawing:
    """Two process profiles with the key that each serves worst."""
    drawing = Drawing(860, 240, "A process profile must leave every key 99 % of stock NCCL's speed")

    def across(ratio: float) -> float:
        return 300 + (ratio - 0.95) * 4400

    drawing.text(150, 28, "profile", "strong")
    drawing.text(560, 28, "speed of its worst key against stock NCCL, with its bounds", "strong")
    rows = [
        ("384 threads, 64 channels", "gained 1.084 in the race", 0.963, 0.984, 1.005, RED),
        ("64 channels", "gained 1.080 in jobs", 0.985, 0.990, 0.998, TEAL),
    ]
    for row, (name, gain, low, middle, high, colour) in enumerate(rows):
        y = 80 + 66.0 * row
        drawing.text(150, y - 2, name, "strong")
        drawing.text(150, y + 16, gain, "quiet")
        drawing.line([(across(low), y + 4), (across(high), y + 4)], colour, width=4)
        drawing.dot(across(middle), y + 4, colour, 6)
    drawing.line([(across(0.99), 46), (across(0.99), 196)], INK, dashes="5 4")
    drawing.text(across(0.99), 214, "floor 0.99", "strong")
    drawing.line([(across(1), 46), (across(1), 196)], LINE)
    drawing.text(across(1) + 8, 214, "stock NCCL", "quiet", "start")
    drawing.line([(300, 196), (560, 196)], LINE)
    drawing.text(150, 214, "measured on four H200", "quiet")
    return drawing


def executor() -> Drawing:
    """The way of a call through the executor."""
    drawing = Drawing(860, 230, "The executor takes the calls that the table gives to schedules")
    drawing.box(20, 80, (150, 62), ["Job", "ncclAllReduce(...)"], AMBER)
    drawing.box(260, 80, (180, 62), ["Executor", "preloaded, 30 ns"], TEAL)
    drawing.line([(170, 111), (256, 111)], INK, arrow=True)
    drawing.box(560, 24, (270, 62), ["Kernel", "peer memory of the GPUs"], VIOLET)
    drawing.box(560, 136, (270, 62), ["NCCL", "steered by the plugin"], AMBER)
    drawing.line([(440, 100), (500, 55), (556, 55)], VIOLET, arrow=True)
    drawing.text(486, 44, "schedule won", "quiet")
    drawing.line([(440, 122), (500, 167), (556, 167)], AMBER, arrow=True)
    drawing.text(480, 190, "everything else", "quiet")
    drawing.text(350, 166, "operation, size, type,", "quiet")
    drawing.text(350, 182, "communicator: alike", "quiet")
    drawing.text(350, 198, "on all ranks", "quiet")
    return drawing


def phases() -> Drawing:
    """Phases of an all_reduce on two nodes, and slices that overlap them."""
    drawing = Drawing(860, 330, "Phases inside nodes and along rails; slices keep the network busy")
    colours = (TEAL, AMBER, VIOLET, RED)
    titles = [
        "1  reduce_scatter in each node",
        "2  all_reduce along each rail",
        "3  all_gather in each node",
    ]
    for panel, title in enumerate(titles):
        x = 20 + 285.0 * panel
        drawing.text(x + 125, 26, title, "strong")
        for node in range(2):
            y = 44 + 92.0 * node
            drawing.box(x, y, (250, 62), [""], INK)
            for place in range(4):
                drawing.box(
                    x + 8 + 60 * place, y + 15, (54, 32), [f"{4 * node + place}"], colours[place]
                )
            if panel != 1:
                drawing.line([(x + 20, y + 55), (x + 230, y + 55)], QUIET, width=3)
        if panel == 1:
            for place in range(4):
                drawing.line([(x + 35 + 60 * place, 92), (x + 35 + 60 * place, 149)],
                             colours[place], width=3)  # fmt: skip
    drawing.text(20, 232, "in time:", "strong", "start")
    for row, name in enumerate(("GPUs", "network")):
        drawing.text(95, 262 + 34 * row, name, "quiet", "end")
    for part in range(4):
        colour = (TEAL, AMBER, VIOLET, RED)[part]
        start = 110 + 150.0 * part
        drawing.bar(start + (20 if part else 0), 246, (48, 22), colour)
        drawing.bar(start + 70, 280, (140, 22), colour)
        drawing.bar(start + 215, 246, (48, 22), colour)
    note = "Below a colour is a slice of the call: the network carries one, GPUs work on others."
    drawing.text(430, 322, note, "quiet")
    return drawing


def confirmation() -> Drawing:
    """Two contenders in turn over starts, and the interval of their ratio."""
    drawing = Drawing(860, 260, "Two contenders in turn, start by start; the interval decides")
    stock = [100.0, 112.0, 96.0, 107.0, 103.0]
    tuned = [91.0, 104.0, 88.0, 99.0, 92.0]
    drawing.text(230, 26, "time of a call in each start of the processes", "strong")
    for start, (a, b) in enumerate(zip(stock, tuned, strict=True)):
        x = 60 + 80.0 * start
        drawing.bar(x, 200 - (a - 60) * 2.6, (24, (a - 60) * 2.6), AMBER)
        drawing.bar(x + 28, 200 - (b - 60) * 2.6, (24, (b - 60) * 2.6), TEAL)
        drawing.text(x + 26, 220, f"start {start + 1}", "quiet")
    drawing.line([(48, 200), (450, 200)], LINE)
    drawing.bar(60, 236, (12, 12), AMBER)
    drawing.text(78, 246, "stock NCCL", "quiet", "start")
    drawing.bar(170, 236, (12, 12), TEAL)
    drawing.text(188, 246, "a setting", "quiet", "start")
    drawing.text(660, 26, "ratio of both, start by start", "strong")

    def across(ratio: float) -> float:
        return 560 + (ratio - 0.95) * 1200

    for start, (a, b) in enumerate(zip(stock, tuned, strict=True)):
        drawing.dot(across(a / b), 60 + 18 * start, INK)
    drawing.line([(across(1.065), 170), (across(1.118), 170)], TEAL, width=4)
    drawing.dot(across(1.09), 170, TEAL, 6)
    drawing.line([(across(1), 46), (across(1), 200)], INK, dashes="5 4")
    drawing.text(across(1), 220, "as fast", "quiet")
    drawing.text(across(1.09), 196, "mean and bound", "quiet")
    drawing.text(640, 246, "Schematic: starts differ by more than contenders do.", "quiet")
    return drawing


def pictures() -> dict[str, Drawing]:
    """Each picture by the name of its file."""
    return {
        "overview.svg": overview(),
        "sketches.svg": sketches(),
        "packing.svg": packing(),
        "hyperband.svg": hyperband(),
        "minimum.svg": minimum(),
        "executor.svg": executor(),
        "phases.svg": phases(),
        "confirmation.svg": confirmation(),
    }
