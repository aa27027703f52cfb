"""Disciplines: whose turn it is on an engine, asked before each iteration. concepts/sharing.md says when to use which."""
