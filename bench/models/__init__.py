"""Models for benches and tests: tiny ones, ones of any size with random weights, and the shipped one."""
