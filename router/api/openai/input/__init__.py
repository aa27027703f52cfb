"""Turns the bytes of a request into a checked call."""
