"""Holds what the placement daemon observes: traffic, engines, failures."""
