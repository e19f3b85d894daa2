"""A host of a measurement, as a process: `python endpoint_host.py serve|bandwidth|latency TASK`.

A server prints its port and stops when its standard input ends; a client prints its figure.
"""

import sys
from pathlib import Path

from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from probes.network.instruments.endpoint import (
    PairTask,
    measure_bandwidth,
    measure_latency,
    start_server,
)
from probes.network.instruments.tools import Figure


def main() -> None:
    role, text = sys.argv[1:]
    task = TypeAdapter(PairTask).validate_json(text)
    if role == "serve":
        with start_server(task) as server:
            sys.stdout.write(f"{server.tcp_port}\n")
            sys.stdout.flush()
            sys.stdin.read()
        return
    figure = measure_bandwidth(task) if role == "bandwidth" else measure_latency(task)
    sys.stdout.write(TypeAdapter(Figure).dump_json(figure).decode())


if __name__ == "__main__":
    main()
