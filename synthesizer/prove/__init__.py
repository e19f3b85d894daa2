"""The proof that a schedule is right for every interleaving, or the defect that it has."""
