"""Decode steps that are captured once and replayed."""
