"""Loads of a simulation: traces, arrival processes, lengths."""
