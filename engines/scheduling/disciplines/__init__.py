"""Disciplines: whose turn it is on an engine, asked before each iteration (docs/concepts/sharing.md)."""
