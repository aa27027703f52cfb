"""Engines in virtual time."""
