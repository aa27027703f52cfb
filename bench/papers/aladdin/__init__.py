"""Aladdin: how many engines keep the promise."""
