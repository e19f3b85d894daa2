"""Stand-ins for GPUs and NCCL, for tests and laboratories; no tuned table comes from here.

They ship with the package so that an installation can be tested on a host without GPUs, and so that
authors of schedules and engines can test them. The product imports none of them.

`sockets_engine`, with `sockets_collectives` and `sockets_transport`
    An engine (`tuccl.measuring.workers.engine.Engine`) that needs no GPU and no NCCL: ring and tree
    collectives in NumPy over TCP, between processes of one host. Leading, distributing, timing,
    checking and recovering run on it with real processes and real data. `--backend sockets` and
    `open_workers_backend("sockets", ...)` ask for it by name; a worker process then imports it by
    the path that `tuccl.measuring.workers.engine.ENGINES` has, the only mention of this package
    outside it. Its times say nothing about any GPU: tables of it say that they are of a stand-in,
    and `tuccl calibrate` refuses its records. Derive from `SocketsEngine` for an engine with
    faults.

`emulator`
    Runs a schedule on NumPy arrays: real values, real buffers, threadblocks at random speeds,
    bounded FIFOs, noise in memory that nobody has written. It shares no code with the verifier
    beyond the operations' buffer sizes, so that each is a test of the other; `expected_outputs`
    gives what an operation is defined to give. It knows no time: `synthesizer.simulate` does.

What stands in for a machine in front of a user is product and stands elsewhere: the simulated
backend, a model of NCCL's and the executor's costs (`tuccl.measuring.backends.simulated`), and
records that are replayed (`tuccl.measuring.backends.replay`). What no installation needs is below
`tests/`: the simulated network of hosts (`tests.probes.network.simulated_network`), NCCL's and
NVML's stand-ins in C.
"""
