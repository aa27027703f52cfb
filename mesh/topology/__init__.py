"""Describes what a deployment consists of, and how it is read from a TOML file."""
