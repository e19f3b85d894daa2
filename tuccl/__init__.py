"""The application: command line, pipeline, search, measurement backends, NCCL runtime."""

__version__ = "0.1.0"
