"""The GPUs of a host from NVIDIA's tools (NVML, nvidia-smi), and builds of programs for them."""
