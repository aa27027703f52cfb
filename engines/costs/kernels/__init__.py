"""Composes presets from measured kernels: what an iteration takes on a GPU when its processor takes no time."""
