"""Programs of the executor: the compiler, and the reader with all checks."""
