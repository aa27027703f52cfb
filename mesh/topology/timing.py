"""Deadlines of the control plane, and how they grow with a mesh."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HEARD_PER_S: Final = 1000  # statuses that a process hears, of all others together
SMALL_MESH: Final = 32  # processes: where there are no more, what is new is told at once
LEASE_HEARTBEATS: Final = 5  # that a process may miss until it counts as dead


@dataclass(frozen=True, slots=True)
class Timing:
    """Deadlines of the control plane."""

    heartbeat_s: float = 0.2  # a status at least this often
    status_gap_s: float = 0.0  # from one status of a process to the next, whatever is new; 0: news is told at once
    lease_s: float = 1.0  # silence after which a process counts as dead
    reply_s: float = 1.0  # an answer from another process
    drain_s: float = 60.0  # a clean shutdown
    start_s: float = 120.0  # a process, until it says that it is ready
    stall_s: float = 60.0  # no word of a request, beyond four times its predicted TTFT: it goes on elsewhere

    @classmethod
    def of(cls, num_processes: int, given: Mapping[str, float]) -> "Timing":
        """Return the deadlines of a mesh with so many processes that publish statuses; its file names those ``given``.

        Each process hears the statuses of all, so what it hears a second would grow with their number, and what the
        mesh sends with the square. In a large mesh each one speaks less often, so that nobody hears more than
        `HEARD_PER_S`.
        """
        usual, share_s = cls(), num_processes / HEARD_PER_S
        heartbeat_s = max(usual.heartbeat_s, share_s)
        fields = {
            "heartbeat_s": heartbeat_s,
            "lease_s": max(usual.lease_s, LEASE_HEARTBEATS * heartbeat_s),
            "status_gap_s": share_s if num_processes > SMALL_MESH else 0.0,
        }
        return cls(**{**fields, **given})
