"""Searches for the cheapest topology that keeps promises, by successive halving over simulations."""
