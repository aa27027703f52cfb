"""Fetches models and converts them, once."""
