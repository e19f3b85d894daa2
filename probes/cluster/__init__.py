"""A probe of several hosts: how they are reached, their tasks, and the merge of their reports."""
