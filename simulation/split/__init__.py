"""Runs that are cut into stretches of their time."""
