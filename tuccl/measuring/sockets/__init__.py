"""A stand-in for GPUs and NCCL, for tests and laboratories; no tuned table comes from here.

An engine (`tuccl.measuring.workers.engine.Engine`) that needs no GPU and no NCCL: ring and tree
collectives in NumPy over TCP, between processes of one host. It ships with the package, so that an
installation and other engines can be tested on a host without GPUs: leading, distributing, timing,
checking and recovering run on it with real processes and real data. `--backend sockets` asks for it
by name, and a worker then imports it by its path in `ENGINES`, the only mention outside this
package. Its times say nothing about any GPU: tables of it say that they are of a stand-in, and
`tuccl calibrate` refuses its records. Derive from `SocketsEngine` for an engine with faults.
"""
