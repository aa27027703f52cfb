"""Holds what every process of the mesh has: arguments, logs, event loop, signals, its private folder."""
