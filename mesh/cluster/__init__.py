"""Hosts that a cluster's engine holds: Ray, or Slurm."""
