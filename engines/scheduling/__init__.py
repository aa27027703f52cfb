"""Decides which tokens of which requests an engine computes next."""
