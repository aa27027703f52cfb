"""Loads that one file describes, for the simulator and for the load generator."""
