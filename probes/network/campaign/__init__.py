"""The measurement of a network: sampling of pairs, rounds, and findings from the figures."""
