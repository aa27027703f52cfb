"""Changes the present placement to a plan's, on a running mesh, without dropping a request.

Theory of operation. First every engine of the plan is told its place in it and repeats that in its statuses; nothing is
done before all do. So a plan is known to the mesh as a whole or not at all, and whoever follows a daemon that died
reads it there: a plan that all engines repeat is finished, one that some have not heard is forgotten, as nothing of
it was done. Then services are loaded where they are wanted, beside those that are there; when all serve, roles change;
when they have, services leave the engines that the plan does not want them on, and what runs moves with them. That can
take as long as requests last, where other engines are full; whoever decides on the next plan need not wait for it.

Every order is an answer to what statuses say, and is repeated until they say that it is done: lost messages, and orders
that were given twice, do no harm. An engine that cannot load a service, or that is gone for long, ends the changeover:
what was loaded stays, what was to leave stays, everything goes on being served.

Nor does a plan take away what it has no place for: such a service was not wanted when the plan was made, and somebody
loaded it since. It goes only if who gives the plan says that nobody is to serve it (``drops``).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from mesh.wire.control import Announce, EnginePlace, LoadService, ProcessState, SetRole, UnloadService
from mesh.wire.status import EngineStatus, FailedLoad
from router.placement.observe.roster import served

Order = Announce | LoadService | UnloadService | SetRole


class Stage(StrEnum):
    ANNOUNCING = "announcing"
    LOADING = "loading"
    CHANGING_ROLES = "changing roles"
    UNLOADING = "unloading"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: before an order is repeated, before an engine that says nothing counts as gone, and for a whole plan."""

    repeat_s: float = 1.0
    silent_s: float = 10.0
    plan_s: float = 1800.0


class Changeover:
    """Carries out one plan. ``places``: what the plan ``number`` wants of each engine that it concerns, by the engine's
    name.
    """

    def __init__(
        self,
        number: int,
        places: Mapping[str, EnginePlace],
        patience: Patience,
        now: float,
        drops: Collection[str] = (),
    ) -> None:
        self.number = number
        self.places = places
        self.stage = Stage.ANNOUNCING
        self.reason = ""  # why it failed
        self.is_draining = False  # all is ordered and confirmed, and some services have yet to end what they have
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

    def orders(self, statuses: Mapping[str, EngineStatus], now: float) -> list[tuple[str, Order]]:
        """Return what to send to whom now. ``statuses``: the last of each engine that lives. Call it often."""
        here = {engine: status for engine, status in statuses.items() if status.state is ProcessState.READY}
        self._heard_at.update(dict.fromkeys(self.places.keys() & here, now))
        self._advance(here, now)
        if self.is_over:
            return []
        wanted = [(engine, order) for engine in self.places if engine in here for order in self._for(engine, here)]
        due = [
            one
            for one in wanted
            if now >= self._ordered_at.get(one, -self._patience.repeat_s) + self._patience.repeat_s
        ]
        self._ordered_at.update(dict.fromkeys(due, now))
        return due

    def _advance(self, here: Mapping[str, EngineStatus], now: float) -> None:
        self.is_draining = False
        problem = None if self.is_over else self._problem(here, now)
        if problem is not None:
            self.stage, self.reason = Stage.FAILED, problem
        if self.stage in (Stage.CHANGING_ROLES, Stage.UNLOADING) and self._has_restarted(here):
            self.stage = Stage.LOADING
        while not self.is_over and self.places.keys() <= here.keys():
            if any(any(self._for(engine, here)) for engine in self.places):
                return
            if self._is_unfinished(here):
                self.is_draining = self.stage is Stage.UNLOADING
                return
            if self.stage is Stage.ANNOUNCING:
                self._failed_before = {engine: here[engine].failed_loads for engine in self.places}
            self.stage = list(Stage)[list(Stage).index(self.stage) + 1]

    def _has_restarted(self, here: Mapping[str, EngineStatus]) -> bool:
        """Whether an engine holds less than it did: what it was to serve may be served by nobody else any more."""
        return any(
            not served(here[engine]) >= set(self.places[engine].services) for engine in self.places if engine in here
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
                if failed not in before and failed.service in self.places[engine].services:
                    yield f"{engine} did not load {failed.service}: {failed.reason}"

    def _for(self, engine: str, here: Mapping[str, EngineStatus]) -> Iterator[Order]:
        """What the engine is to be told in this stage, as long as its status does not show it."""
        place, status = self.places[engine], here[engine]
        held = served(status)
        if status.place != place:
            yield Announce(place)  # an engine that was started again has forgotten
        match self.stage:
            case Stage.LOADING:
                yield from (
                    LoadService(name) for name in place.services if name not in held and name not in status.loading
                )
            case Stage.CHANGING_ROLES if status.role is not place.role:
                yield SetRole(place.role, status.num_role_changes)
            case Stage.UNLOADING:
                yield from (
                    UnloadService(name) for name in sorted(held & self._may_leave) if name not in place.services
                )

    def _is_unfinished(self, here: Mapping[str, EngineStatus]) -> bool:
        """Whether engines still do what they were told."""
        for engine, place in self.places.items():
            status = here[engine]
            if self.stage is Stage.LOADING and not served(status) >= set(place.services):
                return True
            holds = {service.name for service in status.services}
            if self.stage is Stage.UNLOADING and holds & self._may_leave - set(place.services):
                return True
        return False


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
