"""Measuring: backends, the engines and workers behind them, records, and calibration."""
