"""Measuring on real ranks: a leader, a worker process per rank, and where they sit."""
