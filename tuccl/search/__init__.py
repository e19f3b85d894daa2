"""The search: Hyperband's plan, TPE by ask and tell, MRACO, and baseline strategies."""
