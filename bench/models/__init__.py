"""Models for benches and tests: tiny ones, and ones of any size with random weights."""
