"""Real meshes whose processes, messages and clients are made to fail: ``python -m bench.harm chaos``."""
