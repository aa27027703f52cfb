"""Decides whether a running process should be ended because it will not get on by itself. Pure.

A process that is silent, or says that its step does not end, may only be slow: the machine swaps, or somebody stopped
it for a moment. So patience is long, and only time is counted in which the supervisor itself was awake: after a pause
of the whole machine nobody is called silent.
"""

from mesh.wire.control import ProcessState
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import EngineStatus, GatewayStatus

STUCK_S = 20.0
SILENT_S = 30.0
LOOK_S = 0.5
LONGEST_GAP_S = 2 * LOOK_S  # between two looks that counts


class Watchdog:
    """Watches one incarnation of a process from the moment that it is ready. Call `look` every `LOOK_S`."""

    def __init__(self, stuck_s: float = STUCK_S, silent_s: float = SILENT_S) -> None:
        self._stuck_s = stuck_s
        self._silent_s = silent_s
        self._silent_for_s = 0.0
        self._stuck_for_s = 0.0
        self._why_stuck: str | None = None
        self._looked_at: float | None = None

    def __repr__(self) -> str:
        return f"<Watchdog silent for {self._silent_for_s:.1f} s, stuck for {self._stuck_for_s:.1f} s>"

    def heard(self, status: EngineStatus | GatewayStatus | PlacementStatus) -> None:
        self._silent_for_s = 0.0
        if isinstance(status, EngineStatus) and status.state is ProcessState.STUCK:
            self._why_stuck = status.error or "a step does not end"
        else:
            self._why_stuck, self._stuck_for_s = None, 0.0

    def look(self, now: float) -> str | None:
        """Return why to end the process; None: let it be."""
        passed_s = 0.0 if self._looked_at is None else min(now - self._looked_at, LONGEST_GAP_S)
        self._looked_at = now
        self._silent_for_s += passed_s
        if self._why_stuck is not None:
            self._stuck_for_s += passed_s
        if self._silent_for_s >= self._silent_s:
            return f"silent for {self._silent_for_s:.0f} s"
        if self._why_stuck is not None and self._stuck_for_s >= self._stuck_s:
            return f"stuck for {self._stuck_for_s:.0f} s: {self._why_stuck}"
        return None
