"""Measurement backends, which implement the protocol of `tuccl.trials.backend`."""
