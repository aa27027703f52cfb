"""Keeps an engine's role, its state, its place in the plan, and counts of what it has done so far."""

from dataclasses import dataclass

import structlog

from mesh.wire.adapters import ExpectAdapter, ForgetAdapter
from mesh.wire.control import (
    Announce,
    Drain,
    EnginePlace,
    LoadService,
    ProcessState,
    Role,
    SetRole,
    StageService,
    UnloadService,
)

EngineOrder = SetRole | Drain | LoadService | StageService | UnloadService | Announce | ExpectAdapter | ForgetAdapter

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Standing:
    """What an engine is and what it has done so far: the part of its status that is not worked out.

    ``keeps_role``: it takes no other one. ``has_news``: since the last status, something happened that others could not
    foresee from it. Requests were taken, began or ended, a prompt was computed, the role, the state or the services are
    others. That steps end is no news.
    """

    role: Role
    keeps_role: bool = False
    state: ProcessState = ProcessState.READY
    is_stopping: bool = False
    seq: int = 0  # of the last status
    num_cancelled: int = 0
    num_preempted: int = 0
    num_kept: int = 0  # of ends of slices
    num_moved: int = 0
    num_offloaded: int = 0
    num_role_changes: int = 0
    place: EnginePlace | None = None  # in the newest plan that was announced
    has_news: bool = True

    def hear(self, order: EngineOrder) -> bool:
        """Note what an order changes of it. Return whether anything is left to obey."""
        match order:
            case SetRole():
                return self.set_role(order)
            case Announce():
                return self.hear_plan(order)
            case Drain():
                return self._drain_or_undo(order)
            case LoadService() | StageService() | UnloadService():
                self.has_news = True
        return True

    def _drain_or_undo(self, order: Drain) -> bool:
        if self.is_stopping:
            return False
        self.state = ProcessState.READY if order.undo else ProcessState.DRAINING
        self.has_news = True
        return True

    def stop(self) -> None:
        """It takes nothing new from now on, whatever it is told."""
        self.state, self.is_stopping, self.has_news = ProcessState.DRAINING, True, True

    def set_role(self, message: SetRole) -> bool:
        """A matter of the next iterations: nothing is moved, flushed or loaded (Tropical). Return whether it is new."""
        if self.keeps_role or message.num_role_changes != self.num_role_changes or message.role is self.role:
            return False
        if message.plan is not None and self.place is not None and message.plan < self.place.number:
            return False
        log.info("role changed", was=self.role, role=message.role)
        self.role = message.role
        self.num_role_changes += 1
        self.has_news = True
        return True

    def hear_plan(self, message: Announce) -> bool:
        """The place in the newest plan counts. Return whether it is new."""
        is_new = self.place is None or self.place.number < message.place.number
        if is_new:
            self.place = message.place
        return is_new
