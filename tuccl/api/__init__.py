"""The Python interface: the names of `import tuccl`, for programs and notebooks."""
