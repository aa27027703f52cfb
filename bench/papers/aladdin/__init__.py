"""Aladdin: how many engines keep the promise, and how far packing is from the optimum."""
