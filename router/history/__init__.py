"""Keeps what happened to requests: records, explanations, tallies, lengths of answers."""
