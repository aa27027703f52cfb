"""Runs jobs that need nothing of each other: in processes of this machine, or on a Ray cluster."""
