"""Lists what the core of any process asks its shell to do. Engines and gateways have effects of their own besides."""

import msgspec


class Follow(msgspec.Struct, frozen=True):
    """Hear the statuses of these processes from now on."""

    processes: frozenset[str]


class Publish(msgspec.Struct, frozen=True):
    """Tell everybody the status of this process, as it is at the end of the turn."""


class Forget(msgspec.Struct, frozen=True):
    """Drop what waits to be sent to a process that is over."""

    process: str


class Rest(msgspec.Struct, frozen=True):
    """All that was here has ended, or the time for it is over: the process may end."""
