"""The bundle's records, shared by writer and reader.

`tuccl/runtime/bundle_layout.h` defines them in C, and docs/reference/bundle-format.md describes
them. All integers are little-endian; sections start at multiples of 8.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

from lookup_tables.table import NcclAlgorithm, NcclProtocol

MAGIC = b"TUCCLBDL"
FORMAT_VERSION = 1
ALIGNMENT = 8
LARGEST_BUNDLE_BYTES = 2**30
"""Largest size, far above any table; so a wrong path (a checkpoint) cannot fill a job's memory."""

HEADER = struct.Struct("<8sIIIIQ")
"""Fields: magic, version, crc32, header bytes, number of sections, total bytes."""
_CRC = slice(12, 16)
"""Place of the CRC in the headers of bundles and programs."""

SECTION = struct.Struct("<IIQQII")
"""Fields: kind, flags, offset, bytes, number of records, bytes per record."""
SECTION_REQUIRED = 1
"""Flag: a reader that does not know this kind must refuse the bundle."""


class SectionKind(IntEnum):
    """The kinds of sections."""

    TEXT = 1
    """UTF-8, without terminators; other records refer to it by offset and length."""
    IDENTITY = 2
    GPU_MODELS = 3
    SHAPES = 4
    ENTRIES = 5
    PROFILE = 6
    SCHEDULES = 7
    PROGRAMS = 8
    """Compiled schedules: `lookup_tables.bundles.program_section`."""
    PLACEMENTS = 9
    """Communicators with entries of their own: a record is a class of communicators of a shape, for
    one operation, with NCCL's estimate as a line and the class's entries."""
    PLACED_ENTRIES = 10
    HOST_DEVICES = 11
    """GPUs and NICs of the hosts that the table is for: `lookup_tables.bundles.host_devices`."""
    VARIABLES = 12
    """NCCL's variables that every process had while the table was measured; without any a section
    without records, and none at all where they are not known."""
    SUMS = 13
    """Orders of sums, in tables whose sums do not move. A reader that does not know them would
    leave calls to NCCL, so it must refuse the bundle."""

    SETTINGS = 14
    """Variables of PROFILE that the executor sets on communicators of a shape, by their
    configuration."""
    RUNNERS_UP = 15
    """Settings of NCCL that a job may try for calls of a size, if it learns."""
    RUNNER_UP_SCHEDULES = 16
    """Schedules that it may try, too: a record for each, the fastest of a size first."""


IDENTITY = struct.Struct("<IIII")
"""Fields: fingerprint (text offset, length), topology name (text offset, length)."""
GPU_MODEL = struct.Struct("<HHI")
"""Fields: PCI vendor, PCI device, zero."""
OPERATION_SLOTS = 8
SHAPE = struct.Struct("<IIII" + "II" * OPERATION_SLOTS)
"""Fields: ranks, nodes, ranks per node, zero; per operation first entry and number of entries."""
ENTRY = struct.Struct("<QQBBBBIBBHIQff")
"""Fields: min bytes, max bytes; algorithm, protocol, nchannels, chunk code; schedule index,
schedule protocol, flags, schedule nchannels, schedule nthreads, schedule buffer bytes; built-in
time, default time in µs."""
IN_WINDOWS = 1
"""Flag of an entry whose schedule serves calls on registered windows, too."""
PROFILE = struct.Struct("<IIII")
"""Fields: name (text offset, length), value (text offset, length)."""
SCHEDULE = struct.Struct("<IIIIII")
"""Fields: content hash, name, MSCCL XML: text offset and length of each."""

PLACEMENT = struct.Struct("<IIddIIfI")
"""Fields: index of the shape, operation; latency in us, us per byte; first entry, number of entries
in PLACED_ENTRIES; tolerance, zero."""

MOST_HOST_DEVICES = 1024
"""Most records of HOST_DEVICES, far above any machine: readers compare each with each."""
HOST_DEVICE = struct.Struct("<IIHHIIIIBBBB")
"""Fields: kind of host, kind of device, PCI vendor, PCI device, number, Mb/s, name (text offset,
length), NVLinks, further GPUs at its PCIe switches, at its NUMA node, zero."""
MOST_OF_A_HOST = 255
"""Largest number of links or GPUs that a record of HOST_DEVICES has, far above any host."""

SUM_ORDER = struct.Struct("<IIII")
"""Fields: index of the shape, operation, order (text offset, length)."""

SETTING = struct.Struct("<IIIIIIII")
"""Fields: ranks, nodes, ranks per node, zero; name (text offset, length), value (text offset,
length)."""

MOST_RUNNERS_UP = 7
RUNNERS_UP = struct.Struct("<IIIIQQ" + "I" * (MOST_RUNNERS_UP + 1))
"""Fields: ranks, nodes, ranks per node, operation; min bytes, max bytes; number of settings, and
of each algorithm, protocol, nchannels and chunk code, a byte each; 0 behind the last one."""

RUNNER_UP_SCHEDULE = struct.Struct("<IIII" + ENTRY.format.removeprefix("<"))
"""Fields: ranks, nodes, ranks per node, operation; the fields of an entry of a schedule alone."""

OPTIONAL = frozenset(
    {
        SectionKind.PROGRAMS,
        SectionKind.PLACEMENTS,
        SectionKind.PLACED_ENTRIES,
        SectionKind.HOST_DEVICES,
        SectionKind.VARIABLES,
        SectionKind.SETTINGS,
        SectionKind.RUNNERS_UP,
        SectionKind.RUNNER_UP_SCHEDULES,
    }
)
"""Sections that a bundle may lack and a reader may ignore."""
MAY_LACK = OPTIONAL | {SectionKind.SUMS}
"""Sections that a bundle may lack."""

RECORDS = {
    SectionKind.TEXT: struct.Struct("<s"),
    SectionKind.IDENTITY: IDENTITY,
    SectionKind.GPU_MODELS: GPU_MODEL,
    SectionKind.SHAPES: SHAPE,
    SectionKind.ENTRIES: ENTRY,
    SectionKind.PROFILE: PROFILE,
    SectionKind.SCHEDULES: SCHEDULE,
    SectionKind.PROGRAMS: struct.Struct("<8s"),
    SectionKind.PLACEMENTS: PLACEMENT,
    SectionKind.PLACED_ENTRIES: ENTRY,
    SectionKind.HOST_DEVICES: HOST_DEVICE,
    SectionKind.VARIABLES: PROFILE,
    SectionKind.SUMS: SUM_ORDER,
    SectionKind.SETTINGS: SETTING,
    SectionKind.RUNNERS_UP: RUNNERS_UP,
    SectionKind.RUNNER_UP_SCHEDULES: RUNNER_UP_SCHEDULE,
}

NO_CODE = 0xFF
"""Algorithm and protocol of an entry without a built-in or schedule configuration."""
NO_SCHEDULE = 0xFFFFFFFF

ALGORITHMS = tuple(NcclAlgorithm)
"""Algorithms by code, the rows of NCCL's cost table."""
PROTOCOLS = tuple(NcclProtocol)
"""Protocols by code, the columns of NCCL's cost table."""


def chunk_code(chunk_bytes: int) -> int:
    """Return the code of a chunk size, its logarithm to base 2; 0 is NCCL's own.

    Raises:
        ValueError: It is not a power of two.
    """
    if chunk_bytes < 0 or chunk_bytes & (chunk_bytes - 1):
        raise ValueError(f"chunks of {chunk_bytes} bytes: only powers of two have a code")
    return max(0, chunk_bytes.bit_length() - 1)


def bundle_crc(data: bytes) -> int:
    """Return the CRC-32 (zlib's polynomial) of a bundle or program without its CRC field."""
    return zlib.crc32(data[_CRC.stop :], zlib.crc32(data[: _CRC.start]))


def with_crc(data: bytes) -> bytes:
    """Return a bundle or program with its CRC set."""
    return data[: _CRC.start] + struct.pack("<I", bundle_crc(data)) + data[_CRC.stop :]
