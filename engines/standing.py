"""Keeps what an engine is and what it has done so far."""

from dataclasses import dataclass

from mesh.wire.control import EnginePlace, ProcessState, Role


@dataclass(slots=True)
class Standing:
    """What an engine is and what it has done so far: the part of its status that is not worked out.

    ``has_news``: since the last status, something happened that others could not foresee from it. Requests were taken,
    began or ended, a prompt was computed, the role, the state or the services are others. That steps end is no news.
    """

    role: Role
    state: ProcessState = ProcessState.READY
    seq: int = 0  # of the last status
    num_cancelled: int = 0
    num_preempted: int = 0
    num_kept: int = 0  # of ends of slices
    num_moved: int = 0
    num_offloaded: int = 0
    num_role_changes: int = 0
    place: EnginePlace | None = None  # in the newest plan that was announced
    has_news: bool = True
