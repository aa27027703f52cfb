"""Looks at what engines need of this machine: kernels, torch, GPUs, models and their cache."""
