"""Faults of a simulation, and what must hold whatever goes wrong."""
