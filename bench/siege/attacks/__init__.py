"""The catalogue: importing this package fills it."""

from bench.siege.attacks import (
    access,
    files,
    floods,
    grammars,
    hosts,
    http_bodies,
    http_heads,
    patterns,
    promises,
    prompts,
    readers,
    sampling,
    schemas,
    stops,
    tokenizing,
    wire,
)

__all__ = [
    "access",
    "files",
    "floods",
    "grammars",
    "hosts",
    "http_bodies",
    "http_heads",
    "patterns",
    "promises",
    "prompts",
    "readers",
    "sampling",
    "schemas",
    "stops",
    "tokenizing",
    "wire",
]
