"""The files in which a schedule leaves TuCCL, and MSCCL XML, which is also read."""
