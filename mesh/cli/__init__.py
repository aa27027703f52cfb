"""The ``mesh`` command. Each file is one command; what is slow to import is imported when its command runs."""

from mesh.cli.entry import main

__all__ = ["main"]
