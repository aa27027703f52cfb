"""Says how often a job is tried whose worker dies, and what is raised when all of them died."""

from typing import Final

from mesh.errors import CommandError

ATTEMPTS: Final = 2


class WorkerDiedError(CommandError):
    """A worker died with a job, and so did the one that tried it again."""
