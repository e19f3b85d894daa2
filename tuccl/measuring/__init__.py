"""Measuring on real ranks: a leader, a worker process per rank, and the engines that they run."""
