"""Predicts what prefills and decode steps cost: cost models, presets, profiles, learning."""
