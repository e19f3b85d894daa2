"""Numbers of names that lspci prints: PCI classes, a few vendors and a few devices.

Without -nn lspci prints names of the PCI ID database (pci-ids.ucw.cz) and no numbers. Only names
that matter for a topology are listed; other names stay unknown.
"""

from __future__ import annotations

CLASS_OF_NAME = {
    "SCSI storage controller": 0x0100,
    "RAID bus controller": 0x0104,
    "SATA controller": 0x0106,
    "Serial Attached SCSI controller": 0x0107,
    "Non-Volatile memory controller": 0x0108,
    "Mass storage controller": 0x0180,
    "Ethernet controller": 0x0200,
    "Infiniband controller": 0x0207,
    "Fabric controller": 0x0208,
    "Network controller": 0x0280,
    "VGA compatible controller": 0x0300,
    "XGA compatible controller": 0x0301,
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "Audio device": 0x0403,
    "RAM memory": 0x0500,
    "CXL": 0x0502,
    "Memory controller": 0x0580,
    "Host bridge": 0x0600,
    "ISA bridge": 0x0601,
    "PCI bridge": 0x0604,
    "Bridge": 0x0680,
    "Communication controller": 0x0780,
    "Generic system peripheral": 0x0800,
    "IOMMU": 0x0806,
    "System peripheral": 0x0880,
    "Co-processor": 0x0B40,
    "USB controller": 0x0C03,
    "SMBus": 0x0C05,
    "Serial bus controller": 0x0C80,
    "Encryption controller": 0x1080,
    "Performance counters": 0x1101,
    "Signal processing controller": 0x1180,
    "Processing accelerators": 0x1200,
}
"""Class and subclass by name; an NVSwitch is a `Bridge`."""

VENDOR_OF_NAME = (
    ("NVIDIA Corporation", 0x10DE),
    ("nVidia Corporation", 0x10DE),
    ("Mellanox Technologies", 0x15B3),
    ("Advanced Micro Devices, Inc. [AMD/ATI]", 0x1002),
    ("Advanced Micro Devices, Inc. [AMD]", 0x1022),
    ("Intel Corporation", 0x8086),
    ("Broadcom / LSI", 0x1000),
    ("LSI Logic / Symbios Logic", 0x1000),
    ("Broadcom Inc. and subsidiaries", 0x14E4),
    ("PLX Technology, Inc.", 0x10B5),
    ("Matrox Electronics Systems Ltd.", 0x102B),
    ("ASPEED Technology, Inc.", 0x1A03),
    ("NEC Corporation", 0x1033),
    ("Amazon.com, Inc.", 0x1D0F),
    ("Google, Inc.", 0x1AE0),
    ("Microsoft Corporation", 0x1414),
    ("Cray Inc", 0x17DB),
    ("Red Hat, Inc.", 0x1AF4),
)
"""Beginning of a description, and the vendor's id."""

DEVICE_OF_NAME = {
    (0x10DE, "GP100GL [Tesla P100 SXM2 16GB]"): 0x15F9,
    (0x10DE, "GV100GL [Tesla V100 SXM3 32GB]"): 0x1DB8,
    (0x10DE, "GA100 [A100 SXM4 40GB]"): 0x20B0,
    (0x10DE, "GA100 [A100 SXM4 80GB]"): 0x20B2,
    (0x10DE, "GA100 [A800 SXM4 80GB]"): 0x20F3,
    (0x10DE, "GH100 [H100 SXM5 80GB]"): 0x2330,
    (0x10DE, "GH100 [H100 PCIe]"): 0x2331,
    (0x10DE, "GH100 [H200 SXM 141GB]"): 0x2335,
    (0x15B3, "MT28908 Family [ConnectX-6]"): 0x101B,
    (0x15B3, "MT2892 Family [ConnectX-6 Dx]"): 0x101D,
    (0x15B3, "MT2910 Family [ConnectX-7]"): 0x1021,
}
"""Device ids of GPUs and NICs whose name belongs to one id only."""


def vendor_and_device(description: str) -> tuple[int | None, int | None]:
    """Return vendor and device id by name; None where the name does not determine it.

    A device that is not in the database is printed as `Device 2330`, its number in hex.
    """
    for name, vendor in VENDOR_OF_NAME:
        if description.startswith(name):
            rest = description[len(name) :].strip()
            word, _, number = rest.partition(" ")
            if word == "Device" and len(number) == 4 and set(number) <= set("0123456789abcdef"):
                return vendor, int(number, 16)
            return vendor, DEVICE_OF_NAME.get((vendor, rest))
    return None, None
