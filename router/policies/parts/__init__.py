"""Holds what several dispatch policies share."""
