"""The judging of noise: estimators, intervals, pooled variances, allowances for several looks."""
