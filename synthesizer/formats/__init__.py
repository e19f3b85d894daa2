"""Export formats of schedules, and the reader of MSCCL XML."""
