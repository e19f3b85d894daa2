"""The Python interface: what `import tuccl` gives, for programs and notebooks."""
