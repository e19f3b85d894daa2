"""Measurement backends, which implement the protocol of `tuccl.search.trials.backend`."""
