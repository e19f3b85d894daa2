"""The pipeline: what a run is asked, what it will cost, its stages, resuming and retuning."""
