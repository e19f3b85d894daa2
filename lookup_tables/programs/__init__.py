"""Programs of the executor: compiled from MSCCL XML, checked, and laid out as bytes."""
