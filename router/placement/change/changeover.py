"""Changes the present placement to a plan's, on a running mesh, without dropping a request.

Theory of operation. First devices are given to the engines that the plan wants (`router.placement.change.regroup`), if
it wants others than run. Then every engine of the plan is told its place in it and repeats that in its statuses;
nothing is done before all do. So a plan is known to the mesh as a whole or not at all, and whoever follows a daemon
that died reads it there. A plan that all engines repeat is finished. A plan that some have not heard is forgotten, as
nothing of it was done. Then services are loaded where they are wanted, beside those that are there, or staged where
they do not fit beside them. Engines with staged services swap, in the order of `router.placement.change.swaps`. When
all serve, roles change; when they have, services leave the engines that the plan does not want them on, and what runs
moves with them. That can take as long as requests last, where other engines are full; whoever decides on the next plan
need not wait for it.

Every order is an answer to what statuses say, and is repeated until they say that it is done: lost messages, and orders
that were given twice, do no harm. An engine that cannot load a service, or that is gone for long, ends the changeover:
what was loaded stays, what was to leave stays, everything goes on being served. If services have given way in swaps by
then, engines get back what they held, as far as that interrupts no service.

Nor does a plan take away what it has no place for: such a service was not wanted when the plan was made, and somebody
loaded it since. It goes only if who gives the plan says that nobody is to serve it (``drops``).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from mesh.wire.control import (
    Announce,
    EnginePlace,
    LoadService,
    ProcessState,
    SetRole,
    SetRunning,
    StageService,
    UnloadService,
    UsualLengths,
)
from mesh.wire.status import ChildStatus, EngineStatus, FailedLoad
from router.placement.change.regroup import RegroupChange
from router.placement.change.swaps import EngineWeights, in_memory, next_swaps, weights_of
from router.placement.observe.roster import served

Order = Announce | LoadService | StageService | UnloadService | SetRole | SetRunning
NO_CHILDREN: Mapping[str, ChildStatus] = {}


class Stage(StrEnum):
    REGROUPING = "regrouping"
    ANNOUNCING = "announcing"
    LOADING = "loading"
    SWAPPING = "swapping"
    CHANGING_ROLES = "changing roles"
    UNLOADING = "unloading"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a changeover waits, in seconds. ``repeat_s``: before an order is repeated. ``silent_s``: before an
    engine that says nothing counts as gone. ``plan_s``: for a whole plan. ``move_s``: for requests to move before
    they pause, where their service gives way and others serve it.
    """

    repeat_s: float = 1.0
    silent_s: float = 10.0
    plan_s: float = 1800.0
    move_s: float = 5.0


class Changeover:
    """Carries out one plan. ``places``: what the plan ``number`` wants of each engine that it concerns, by the engine's
    name. ``lengths``: what engines are told of requests of their services. ``regroup``: what it takes before that these
    engines run.
    """

    def __init__(
        self,
        number: int,
        places: Mapping[str, EnginePlace],
        patience: Patience,
        now: float,
        drops: Collection[str] = (),
        lengths: Collection[UsualLengths] = (),
        regroup: RegroupChange | None = None,
    ) -> None:
        self.number = number
        self.places = places
        self.stage = Stage.ANNOUNCING if regroup is None else Stage.REGROUPING
        self._regroup = regroup
        self.reason = ""  # why it failed
        self.is_draining = False  # all is ordered and confirmed, and some services have yet to end what they have
        self._is_returning = False  # to what engines held, as the plan failed
        self._wanted = places  # as ``places``; of a plan that failed, what engines held before it
        self._before: Mapping[str, EnginePlace] = {}
        self._weights: dict[str, int] = {}
        self._swapping: dict[str, float] = {}  # engines that have begun to swap, and when
        self._has_swapped = False  # one has begun to
        self._lengths = lengths
        self._may_leave = _services(places) | set(drops)
        self._patience = patience
        self._began_at = now
        self._heard_at = dict.fromkeys(places, now)
        self._failed_before: dict[str, list[FailedLoad]] = {}  # by engine, before anything was loaded
        self._ordered_at: dict[tuple[str, Order], float] = {}

    def __repr__(self) -> str:
        return f"<Changeover to plan {self.number}: {self.stage} {self.reason}>"

    @property
    def is_over(self) -> bool:
        return self.stage in (Stage.DONE, Stage.FAILED)

    @property
    def doing(self) -> str:
        """Return the stage in words, and which engines swap."""
        stage = f"going back, {self.stage}" if self._is_returning and not self.is_over else str(self.stage)
        if self.stage is Stage.REGROUPING and self._regroup is not None:
            return f"{stage}: {self._regroup.doing}"
        engines = ", ".join(self._swapping) if self.stage is Stage.SWAPPING else ""
        return f"{stage} {engines}" if engines else stage

    @property
    def not_begun(self) -> tuple[str, ...]:
        """Return the engines that could not be given devices, of a plan that failed at that."""
        return self._regroup.left if self._regroup is not None and self._regroup.has_failed else ()

    def orders(
        self, statuses: Mapping[str, EngineStatus], now: float, children: Mapping[str, ChildStatus] = NO_CHILDREN
    ) -> list[tuple[str, Order]]:
        """Return what to send to whom now. ``statuses``: the last of each engine that lives. ``children``: what
        supervisors say of engines whose devices can be used in several ways. Call it often.
        """
        if self.stage is Stage.REGROUPING:
            return self._give_devices(statuses, children, now)
        self._weights |= weights_of(statuses.values())
        here = {engine: status for engine, status in statuses.items() if status.state is ProcessState.READY}
        self._heard_at.update(dict.fromkeys(self._wanted.keys() & here, now))
        self._advance(here, now)
        if self.is_over:
            return []
        wanted = [
            (engine, order) for engine in self._wanted if engine in here for order in self._for(engine, here, now)
        ]
        due = [
            one
            for one in wanted
            if now >= self._ordered_at.get(one, -self._patience.repeat_s) + self._patience.repeat_s
        ]
        self._ordered_at.update(dict.fromkeys(due, now))
        return due

    def _give_devices(
        self, statuses: Mapping[str, EngineStatus], children: Mapping[str, ChildStatus], now: float
    ) -> list[tuple[str, Order]]:
        assert self._regroup is not None, "there are engines to be given devices"
        orders: list[tuple[str, Order]] = [*self._regroup.orders(statuses, children, now)]
        if self._regroup.has_failed:
            self.stage, self.reason = Stage.FAILED, self._regroup.reason
        elif self._regroup.is_over:
            self.stage, self._began_at, self._heard_at = Stage.ANNOUNCING, now, dict.fromkeys(self.places, now)
        return orders

    def _advance(self, here: Mapping[str, EngineStatus], now: float) -> None:
        self.is_draining = False
        problem = None if self.is_over else self._problem(here, now)
        if problem is not None:
            self._fail(problem, here, now)
        if self.stage in (Stage.CHANGING_ROLES, Stage.UNLOADING) and self._has_restarted(here):
            self.stage = Stage.LOADING
        while not self.is_over and self._wanted.keys() <= here.keys():
            if self.stage is Stage.SWAPPING:
                self._begin_swaps(here, now)
            if any(any(self._for(engine, here, now)) for engine in self._wanted):
                return
            if self._is_unfinished(here):
                self.is_draining = self.stage is Stage.UNLOADING
                return
            if self.stage is Stage.ANNOUNCING:
                self._failed_before = {engine: here[engine].failed_loads for engine in self.places}
                self._before = {engine: self._held(engine, here[engine]) for engine in self.places}
            if self.stage is Stage.SWAPPING and self._is_returning:
                self.stage = Stage.FAILED
                return
            self.stage = list(Stage)[list(Stage).index(self.stage) + 1]

    def _held(self, engine: str, status: EngineStatus) -> EnginePlace:
        return msgspec.structs.replace(self.places[engine], services=tuple(sorted(served(status))), role=status.role)

    def _fail(self, problem: str, here: Mapping[str, EngineStatus], now: float) -> None:
        """The plan is given up. Where services have given way, engines get back what they held."""
        if self.stage is not Stage.SWAPPING or self._is_returning or not self._has_swapped:
            self.stage, self.reason = Stage.FAILED, f"{self.reason}; {problem}" if self._is_returning else problem
            return
        self._is_returning, self.reason, self.stage = True, problem, Stage.LOADING
        self._wanted = {engine: place for engine, place in self._before.items() if engine in here}
        self._may_leave |= _services(self._before)
        self._heard_at = dict.fromkeys(self._wanted, now)
        self._began_at = now
        self._failed_before = {engine: here[engine].failed_loads for engine in self._wanted}
        self._swapping.clear()

    def _has_restarted(self, here: Mapping[str, EngineStatus]) -> bool:
        """Whether an engine holds less than it did: what it was to serve may be served by nobody else any more."""
        return any(
            not served(here[engine]) >= set(self._wanted[engine].services) for engine in self._wanted if engine in here
        )

    def _problem(self, here: Mapping[str, EngineStatus], now: float) -> str | None:
        """Why the plan cannot be carried out; None if it can."""
        if now > self._began_at + self._patience.plan_s:
            return f"it was not carried out within {self._patience.plan_s:g} s: {self.stage}"
        for engine, heard_at in self._heard_at.items():
            if now > heard_at + self._patience.silent_s:
                return f"{engine} is gone"
        for engine, status in here.items():
            if status.place is not None and status.place.number > self.number:
                return f"{engine} knows of plan {status.place.number}"
        return "; ".join(self._failed_loads(here)) or None

    def _failed_loads(self, here: Mapping[str, EngineStatus]) -> Iterator[str]:
        for engine, before in self._failed_before.items():
            for failed in here[engine].failed_loads if engine in here else ():
                if failed not in before and failed.service in self._wanted[engine].services:
                    yield f"{engine} did not load {failed.service}: {failed.reason}"

    def _for(self, engine: str, here: Mapping[str, EngineStatus], now: float) -> Iterator[Order]:
        """What the engine is to be told in this stage, as long as its status does not show it."""
        place, status = self._wanted[engine], here[engine]
        if status.place != self.places[engine]:
            wanted = self.places[engine]
            lengths = tuple(one for one in self._lengths if one.service in wanted.services)
            yield Announce(wanted, lengths)  # an engine that was started again has forgotten
        match self.stage:
            case Stage.LOADING:
                yield from self._loads(engine, status)
            case Stage.SWAPPING:
                yield from self._loads(engine, status)
                if engine in self._swapping:
                    yield from self._gives_way(engine, here, now)
            case Stage.CHANGING_ROLES if status.role is not place.role:
                yield SetRole(place.role, status.num_role_changes)
            case Stage.UNLOADING:
                yield from (UnloadService(name) for name in self._leaving(engine, status) if name in served(status))

    def _leaving(self, engine: str, status: EngineStatus) -> list[str]:
        """The services that the engine has and is not to have."""
        held = {service.name for service in status.services}
        return sorted(held & self._may_leave - set(self._wanted[engine].services))

    def _missing(self, engine: str, status: EngineStatus) -> list[str]:
        held = served(status) | set(status.loading)
        return [name for name in self._wanted[engine].services if name not in held]

    def _loads(self, engine: str, status: EngineStatus) -> Iterator[Order]:
        """Load what fits. Stage what does not, and what was on no engine that lives, so that its size is not known. An
        engine that stages nothing, or where nothing can give way, says why it cannot load it.
        """
        weights, taken = EngineWeights(self._weights, status.weight_memory), in_memory(status)
        for name in self._missing(engine, status):
            if weights.surely_fit(taken | {name}) or not status.staging_memory or not self._leaving(engine, status):
                taken |= {name}
                yield LoadService(name)
            elif name not in status.staged and name not in status.staging:
                yield StageService(name)

    def _is_staged(self, engine: str, status: EngineStatus) -> bool:
        """Whether all that the engine lacks waits in its host's memory."""
        return served(status) | status.staged.keys() >= set(self._wanted[engine].services)

    # --- swaps --------------------------------------------------------------------------------------------------------

    def _begin_swaps(self, here: Mapping[str, EngineStatus], now: float) -> None:
        """Let engines give way whose turn it is. An engine has swapped when it serves all that it is to serve."""
        lacking = {one: self._leaving(one, here[one]) for one in self._wanted if one in here}
        lacking = {one: names for one, names in lacking.items() if self._missing(one, here[one]) or here[one].loading}
        self._swapping = {one: since for one, since in self._swapping.items() if one in lacking}
        begun = next_swaps(
            {one: names for one, names in lacking.items() if one not in self._swapping and self._waits(one, here[one])},
            {one: names for one, names in lacking.items() if one in self._swapping},
            {name: [one for one in here if name in served(here[one])] for name in self._weights},
            {one: status.num_running for one, status in here.items()},
            may_interrupt=not self._is_returning,
        )
        self._swapping |= dict.fromkeys(begun, now)
        self._has_swapped |= bool(begun)

    def _waits(self, engine: str, status: EngineStatus) -> bool:
        """Whether the engine lacks something that is staged."""
        return any(name in status.staged for name in self._missing(engine, status))

    def _gives_way(self, engine: str, here: Mapping[str, EngineStatus], now: float) -> Iterator[Order]:
        """Requests move while they run if another engine serves them, and pause if none does, or it takes long."""
        is_late = now >= self._swapping[engine] + self._patience.move_s
        for service in here[engine].services:
            if service.name not in self._leaving(engine, here[engine]) or service.is_paused:
                continue
            is_alone = not any(service.name in served(here[one]) for one in here if one != engine)
            if is_alone or is_late or not service.is_leaving:
                yield UnloadService(service.name, pauses=is_alone or is_late)

    def _is_unfinished(self, here: Mapping[str, EngineStatus]) -> bool:
        """Whether engines still do what they were told."""
        for engine, place in self._wanted.items():
            status = here[engine]
            if self.stage is Stage.LOADING and not self._is_staged(engine, status):
                return True
            if self.stage is Stage.SWAPPING and not served(status) >= set(place.services):
                return not self._is_stuck(here)
            if self.stage is Stage.UNLOADING and self._leaving(engine, status):
                return True
        return False

    def _is_stuck(self, here: Mapping[str, EngineStatus]) -> bool:
        """Whether no engine can go back to what it held without interrupting a service."""
        return self._is_returning and not self._swapping and not any(status.loading for status in here.values())


def announced(statuses: Mapping[str, EngineStatus]) -> Mapping[str, EnginePlace]:
    """The plan that the mesh knows of, as each engine of it repeats; empty if there is none that all of them know."""
    places = {engine: status.place for engine, status in statuses.items() if status.place is not None}
    newest = max((place.number for place in places.values()), default=0)
    members = {engine: place for engine, place in places.items() if place.number == newest}
    return members if all(len(members) == place.num_engines for place in members.values()) else {}


def is_in_force(places: Mapping[str, EnginePlace], statuses: Mapping[str, EngineStatus]) -> bool:
    """Return whether the engines are as a plan wants them."""
    placed = _services(places)
    return all(
        engine in statuses
        and statuses[engine].role is place.role
        and placed & {service.name for service in statuses[engine].services} == set(place.services)
        for engine, place in places.items()
    )


def _services(places: Mapping[str, EnginePlace]) -> set[str]:
    """That a plan has places for."""
    return {name for place in places.values() for name in place.services}
