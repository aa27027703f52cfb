"""A logger for what commands load as well: structlog, 70 ms of their start, is imported when a line is written."""

from typing import Any


class LazyLog:
    """Does what ``structlog.get_logger()`` does. `mesh.process.logs` names lines after the module that writes them."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(), name)
