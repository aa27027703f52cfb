"""Engines: cost models, KV pool, local schedulers, the batch step and its backends, the engine process."""
