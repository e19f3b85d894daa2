"""The judging of noise: estimators, intervals, variances of few values, allowances for looks."""
