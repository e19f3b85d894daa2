"""The GPUs of a host as NVIDIA's tools show them: NVML, nvidia-smi, and programs for them."""
