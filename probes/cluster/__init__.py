"""A probe of several hosts: who runs what, how they are reached, and the merge of their reports."""
