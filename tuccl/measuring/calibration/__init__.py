"""Fitting the model of NCCL to measured times: records and nccl-tests output in, constants out."""
