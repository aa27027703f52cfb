"""Prefixes that engines pull from each other, instead of computing them."""
