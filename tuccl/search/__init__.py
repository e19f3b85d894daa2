"""The search: the space as data, Hyperband's plan, TPE by ask and tell, and MRACO."""
