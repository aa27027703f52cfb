"""Tropical's figure with real processes and a real model."""
