"""Decides which requests an engine accepts, and from whom."""
