"""Workers that measure, the leader that asks them, and how they are started."""
