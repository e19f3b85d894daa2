"""The verifier: a proof that a schedule is correct for every interleaving, or its defects."""
