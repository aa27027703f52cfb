"""Calls that servers of others answer: what clients ask is passed on, and so is the answer."""
