"""What prefills and decode steps cost: cost models, presets, profiles, learning."""
