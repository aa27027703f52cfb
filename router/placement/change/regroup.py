"""Carries out the part of a plan that changes which engines have which devices, before its services are moved.

Theory of operation. A service that only engines have which are to end is loaded first where the plan wants it among
those that stay, as far as it fits there. Then engines give up their devices, one group after the other: their
supervisor is asked for the engines that are to begin, lets the others drain, and starts these. It also goes back by
itself if a start fails, and goes on if nobody asks any more (`mesh.supervisor.shared_devices`). So this only asks,
until it sees that somebody listened, and waits until the engines that are wanted are ready, or those before are back.
Nothing of it is announced: who follows a daemon that died in the middle finds a mesh like any other, and plans for
that.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

from mesh.wire.control import EnginePlace, LoadService, ProcessState, SetRunning
from mesh.wire.status import ENDED, STARTED, ChildStatus, EngineStatus, FailedLoad
from router.placement.change.swaps import EngineWeights, in_memory, weights_of
from router.placement.observe.roster import served
from router.placement.search.span import Regrouping

RegroupOrder = LoadService | SetRunning


class RegroupStage(StrEnum):
    COVERING = "covering services"
    REGROUPING = "regrouping"
    DONE = "done"
    FAILED = "failed"


class RegroupChange:
    """Carries out ``regroupings``. ``places``: what the plan wants of each of its engines. ``supervisor_of``: by
    engine. Orders are repeated after ``repeat_s``, and all of it is given up after ``plan_s``.
    """

    def __init__(
        self,
        regroupings: Sequence[Regrouping],
        places: Mapping[str, EnginePlace],
        supervisor_of: Mapping[str, str],
        now: float,
        *,
        repeat_s: float = 1.0,
        plan_s: float = 1800.0,
    ) -> None:
        self.stage = RegroupStage.COVERING
        self.reason = ""  # why it failed
        self._left = list(regroupings)
        self._places = places
        self._supervisor_of = supervisor_of
        self._repeat_s, self._plan_s = repeat_s, plan_s
        self._began_at = now
        self._is_obeyed = False  # the first of those that are left is under way
        self._failed_before: Mapping[str, list[FailedLoad]] | None = None
        self._ordered_at: dict[tuple[str, RegroupOrder], float] = {}

    def __repr__(self) -> str:
        return f"<RegroupChange {self.stage} {self.reason}>"

    @property
    def is_over(self) -> bool:
        return self.stage in (RegroupStage.DONE, RegroupStage.FAILED)

    @property
    def doing(self) -> str:
        return str(self._left[0]) if self.stage is RegroupStage.REGROUPING and self._left else str(self.stage)

    @property
    def has_failed(self) -> bool:
        return self.stage is RegroupStage.FAILED

    @property
    def left(self) -> tuple[str, ...]:
        """Return the engines of the first regrouping that is not done which are to begin."""
        return self._left[0].begins if self._left else ()

    def orders(
        self, statuses: Mapping[str, EngineStatus], children: Mapping[str, ChildStatus], now: float
    ) -> list[tuple[str, RegroupOrder]]:
        """Return what to send to whom now. ``statuses``: the last of each engine that lives. ``children``: of engines,
        as their supervisors tell. Call it often.
        """
        here = {engine: status for engine, status in statuses.items() if status.state is ProcessState.READY}
        self._advance(here, children, now)
        if self.is_over:
            return []
        due = [one for one in self._wanted(here) if now >= self._ordered_at.get(one, -self._repeat_s) + self._repeat_s]
        self._ordered_at.update(dict.fromkeys(due, now))
        return due

    def _wanted(self, here: Mapping[str, EngineStatus]) -> Iterator[tuple[str, RegroupOrder]]:
        if self.stage is RegroupStage.COVERING:
            yield from self._covers(here)
        elif not self._is_obeyed:
            yield from ((self._supervisor_of[one], SetRunning(one, True)) for one in self._left[0].begins)

    def _advance(self, here: Mapping[str, EngineStatus], children: Mapping[str, ChildStatus], now: float) -> None:
        if now > self._began_at + self._plan_s:
            self._fail(f"it was not carried out within {self._plan_s:g} s: {self.doing}")
            return
        if self.stage is RegroupStage.COVERING:
            if self._failed_before is None:
                self._failed_before = {engine: status.failed_loads for engine, status in here.items()}
            if problem := next(self._failed_loads(here), None):
                self._fail(problem)
                return
            if any(self._covers(here)) or any(here[one].loading for one in self._staying(here)):
                return
            self.stage = RegroupStage.REGROUPING
        while self._left and self._is_done(self._left[0], here, children):
            self._left.pop(0)
            self._is_obeyed = False
        if not self._left:
            self.stage = RegroupStage.DONE
        else:
            self._look(self._left[0], children)

    def _look(self, one: Regrouping, children: Mapping[str, ChildStatus]) -> None:
        """Whether the supervisor has heard of it, and whether it went back."""
        states = {name: child.state for name, child in children.items()}
        is_back = all(states.get(name) in STARTED for name in one.ends)
        if self._is_obeyed and is_back:
            reasons = [children[name].last_exit for name in one.begins]
            self._fail(f"{' and '.join(one.begins)} did not start: {next(filter(None, reasons), 'nobody began')}")
        self._is_obeyed |= not is_back and all(name in states for name in (*one.ends, *one.begins))

    def _fail(self, problem: str) -> None:
        self.stage, self.reason = RegroupStage.FAILED, problem

    @staticmethod
    def _is_done(one: Regrouping, here: Mapping[str, EngineStatus], children: Mapping[str, ChildStatus]) -> bool:
        has_ended = all(children[name].state in ENDED for name in one.ends if name in children)
        return has_ended and all(name in here for name in one.begins) and not any(name in here for name in one.ends)

    # --- services that would be interrupted ---------------------------------------------------------------------------

    def _staying(self, here: Mapping[str, EngineStatus]) -> list[str]:
        ending = {name for one in self._left for name in one.ends}
        return [engine for engine in here if engine not in ending]

    def _covers(self, here: Mapping[str, EngineStatus]) -> Iterator[tuple[str, LoadService]]:
        """Loads of services that no engine which stays has, on the first of those that the plan wants them on."""
        staying, weights = self._staying(here), weights_of(here.values())
        kept = {name for engine in staying for name in served(here[engine])}
        lost = {name for status in here.values() for name in served(status)} - kept
        for service in sorted(lost):
            for engine in self._able(service, staying, here, weights):
                if service not in here[engine].loading:
                    yield engine, LoadService(service)
                break

    def _able(
        self, service: str, staying: Collection[str], here: Mapping[str, EngineStatus], weights: Mapping[str, int]
    ) -> Iterator[str]:
        for engine in staying:
            place, status = self._places.get(engine), here[engine]
            room = EngineWeights(weights, status.weight_memory)
            if place is not None and service in place.services and room.fit(in_memory(status) | {service}):
                yield engine

    def _failed_loads(self, here: Mapping[str, EngineStatus]) -> Iterator[str]:
        for engine, before in (self._failed_before or {}).items():
            for failed in here[engine].failed_loads if engine in here else ():
                if failed not in before:
                    yield f"{engine} did not load {failed.service}: {failed.reason}"
