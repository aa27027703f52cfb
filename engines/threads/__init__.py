"""Threads of a host's cores: an engine computes with those that nobody needs, beside its own."""
