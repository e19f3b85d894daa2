"""What GPUs of one host do when they write to each other: a CUDA benchmark and its reading."""
