"""The pipeline of a run: its options, estimate, stages, results, resuming and retuning."""
