"""The JSON document of `verify`."""

from __future__ import annotations

from typing import Literal

from tuccl.reports.documents.document import SCHEMA_VERSION, Document


class DefectDocument(Document):
    """A defect of a schedule, with its place where it has one."""

    kind: str
    rank: int | None
    threadblock: int | None
    step: int | None
    message: str


class AcrossHostsDocument(Document):
    """A schedule cut into stages inside nodes and rounds on the network."""

    node_sizes: list[int]
    rounds: int | None
    messages: list[int]
    """Messages of each round."""
    stages: int | None
    """Stages in which a node has something to do."""
    scratch_chunks: int | None
    """Most scratch chunks of a rank."""
    why_not: str | None


class VerifyDocument(Document):
    """`verify`: whether a schedule is right."""

    schema_version: Literal[8] = SCHEMA_VERSION
    file: str
    algorithm: str
    proved: bool
    defects: list[DefectDocument]
    beyond_msccl_limits: list[str]
    """Limits of MSCCL runtimes that the schedule exceeds, which does not make it wrong."""
    across_hosts: AcrossHostsDocument | None = None
    """For the nodes of `--nodes`."""
