"""Defines the errors of models."""

from mesh.errors import UserError


class ModelError(UserError):
    """A model that cannot be named, fetched, converted or read. One line: what, where, and what would be right."""
