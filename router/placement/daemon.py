"""The placement daemon's core: statuses and time go in, what is to be done comes out. No sockets, no clock, no search.

Theory of operation. The daemon hears what gateways and engines say of themselves. When an interval is over it asks for
a search (`Ask`), for what was asked for in it, and goes on listening; the answer is told to `answered`. If it is
another plan, and that is worth the change, it is carried out by `router.placement.change.changeover`, order by order.
An interval begins where the last one ended, or when a change is over: then it is the new plan that is measured.

Nothing waits for the daemon, and nothing is only in it. What engines hold is read off their statuses, whoever changed
it. What a successor needs to go on with an interval is in `Memory`, which gateways repeat in their statuses beside what
they had counted when the interval began. Whoever finds that all engines know of a plan carries it out, be it announced
by this daemon, by one that died, or by a command. A plan with a higher number ends one with a lower number.

How many engines run is another question: `router.scaling.scaler`. While a plan is carried out, none is stopped.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from mesh.addresses import supervisors
from mesh.membership.membership import ended_incarnations
from mesh.rules import PlacementMode
from mesh.topology.schema import Topology
from mesh.wire.control import EnginePlace, ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage
from mesh.wire.placement import Decision, PlacementStatus
from mesh.wire.status import EngineStatus, GatewayStatus, Mark, Memory, SupervisorStatus
from router.placement.change.changeover import Changeover, Patience, Stage, announced, is_in_force
from router.placement.change.obstacles import Obstacles
from router.placement.change.replacement import Verdict
from router.placement.change.reports import Pending, with_plan, without_plan
from router.placement.change.restoring import SILENT_S, UnservedServices, restored
from router.placement.effects import Abandon, Ask, Effect, Note, Tell
from router.placement.observe.bursts import window_s
from router.placement.observe.conduct import Conduct
from router.placement.observe.deployed import of_deployment
from router.placement.observe.devices import Devices
from router.placement.observe.failures import FailedLoads
from router.placement.observe.interval import ReplacementInterval, Threshold
from router.placement.observe.roster import Roster
from router.placement.observe.running_mesh import places, present_plan, waiting
from router.placement.observe.service_monitor import ServiceMonitor
from router.placement.observe.traffic_seen import TrafficSeen
from router.placement.past_decisions import PastDecisions
from router.placement.search.plan import Plan
from router.placement.search.question import Answer, SearchFailed, make_question
from router.scaling.scaler import Scaler

LOOK_S = 1.0  # while an interval lasts: whether somebody changed something
ORDER_S = 0.1  # while a plan is carried out
SEARCH_S = 120.0  # beyond local search, for a search to end
PARTS = 4  # of an interval, between which what services are asked for may change
BACK_OFF = 2.0  # times the interval, after a plan that could not be carried out


class Doing(StrEnum):
    STARTING = "hearing what is there"
    LISTENING = "listening"
    SEARCHING = "searching"
    CHANGING = "changing"


class PlacementDaemon:
    """Decides when plans change, as ``topology.placement`` says. Always call `expire` at `next_deadline`."""

    def __init__(self, topology: Topology, now: float, *, pid: int = 0, seed: int = 0) -> None:
        assert topology.placement is not None, "the topology has a daemon"
        self.doing = Doing.STARTING
        self._spec = spec = topology.placement
        self._topology = topology
        self._supervisor_of = supervisors(topology)
        self._slos = {service.name: service.slo for service in topology.services}
        self._pid, self._seed = pid, seed
        self._roster = Roster(topology.timing.lease_s)
        self._monitor = ServiceMonitor(now, window_s(spec.shortest_s, topology.timing.heartbeat_s))
        self._seen = TrafficSeen.of(spec)
        self._interval = ReplacementInterval(spec.interval_s, spec.shortest_s, spec.longest_s)
        self._number = 0  # of the interval
        self._began_at = self._asked_at = now
        self._num_tested = 0  # looks at the interval, for whether what is asked for has changed
        self._settled = 0
        self._marks: dict[Sender, tuple[Mark, float]] = {}  # of gateways, and when they were heard
        self._deadline = now + topology.timing.lease_s
        self._pending: Pending | None = None  # what is searched for
        self._change: Changeover | None = None
        self._awaited: Decision | None = None  # that the change comes from
        self._unserved = UnservedServices()
        self._devices = Devices(topology)
        self._failed_loads = FailedLoads()
        self._past = PastDecisions(now)
        self._seq, timing = 0, topology.timing
        self._patience = Patience(timing.reply_s, max(SILENT_S, timing.lease_s + timing.reply_s))
        self._scaler = None if topology.scaling is None else Scaler(topology, now)

    def __repr__(self) -> str:
        return f"<PlacementDaemon {self.doing}, interval {self._number}, {self._interval!r}, {self._change!r}>"

    @property
    def plan(self) -> Plan:
        """Return what the engines that are ready hold; its number is that of the newest plan that any engine knows."""
        known = [status.place.number for status in self._roster.statuses.values() if status.place is not None]
        return replace(present_plan(self._roster.statuses), number=max(known, default=0))

    @property
    def memory(self) -> Memory:
        """Return the memory that a successor needs."""
        interval = self._interval
        planned = self._number, interval.seconds, interval.estimate, self._settled, sorted(self._roster.wanted)
        return Memory(*planned, **self._seen.told())

    def status(self, now: float) -> PlacementStatus:
        """The next status to publish."""
        self._seq += 1
        is_ready = self.doing is not Doing.STARTING
        doing = f"plan {self._change.number}: {self._change.doing}" if self._change is not None else str(self.doing)
        return PlacementStatus(
            seq=self._seq,
            state=ProcessState.READY if is_ready else ProcessState.STARTING,
            host=self._spec.host,
            pid=self._pid,
            mode=str(self._spec.mode),
            doing=doing,
            plan=self.plan.number,
            next_decision_s=max(0.0, self._ends_at - now),
            memory=self.memory if is_ready else None,
            interval_age_s=now - self._began_at,
            pools=[] if self._scaler is None else self._scaler.pools(),
            **self._past.told(now),
        )

    # --- what happens -------------------------------------------------------------------------------------------------

    def hear(self, sender: Sender, status: BroadcastMessage, now: float) -> None:
        """Take what anybody says of itself."""
        status = of_deployment(status, self._slos)
        if self._scaler is not None and isinstance(status, EngineStatus | GatewayStatus | SupervisorStatus):
            self._scaler.hear(sender, status, now)
        match status:
            case EngineStatus():
                self._roster.hear(sender, status, now)
            case GatewayStatus():
                self._monitor.observe(sender, status, now)
                if status.mark is not None:
                    self._recall(sender, status.mark, now)
            case SupervisorStatus():
                self._devices.hear(status)
                for ended in ended_incarnations(sender.process, status, self._supervisor_of):
                    self._roster.declare_dead(ended)
                    self._monitor.declare_dead(ended)

    def next_deadline(self) -> float:
        return self._deadline if self._scaler is None else min(self._deadline, self._scaler.next_deadline)

    def expire(self, now: float) -> list[Effect]:
        """Act on the time."""
        self._roster.expire(now)
        return [*self._scale(now), *self._place(now), *self._note_failed_loads()]

    def _note_failed_loads(self) -> list[Effect]:
        failed = [] if self.doing is Doing.STARTING else self._failed_loads.look(self._roster.statuses, self._number)
        return [Note(line, is_problem=True) for line in failed]

    def _scale(self, now: float) -> list[Effect]:
        if self._scaler is None:
            return []
        decided = self._scaler.decide(now, may_stop=self.doing is not Doing.CHANGING)
        orders = [Tell(order.supervisor, order.message) for order in decided.orders]
        return [*orders, *(Note(line) for line in decided.lines), *(Note(line, True) for line in decided.problems)]

    def _place(self, now: float) -> list[Effect]:
        self._monitor.look(now, self._interval.seconds / PARTS)
        match self.doing:
            case Doing.STARTING if now >= self._deadline:
                return self._start(now)
            case Doing.LISTENING:
                return self._listen(now)
            case Doing.SEARCHING:
                return self._search_on(now)
            case Doing.CHANGING:
                return self._carry_on(now)
        return []

    def answered(self, question: int, answer: Answer | SearchFailed, now: float) -> list[Effect]:
        """Take the answer of a search. One that comes too late changes nothing."""
        pending = self._pending
        if pending is None or pending.question is None or pending.interval != question:
            return []
        self._pending = None
        self._listen_again(now)
        search_s = now - self._asked_at
        if isinstance(answer, SearchFailed):
            reason = "; ".join(answer.reason.splitlines())
            decided = self._past.decide(without_plan(pending, "failed", reason, search_s), now)
            return [*decided, *self._past.fail(f"the search for a plan failed: {reason}")]
        if self.plan.held != pending.question.present.held:
            reason = "engines, or what they hold, changed while a plan was searched for"
            return self._past.decide(without_plan(pending, "overtaken", reason, search_s), now)
        self._past.error = None
        return self._take(pending, answer, search_s, now)

    # --- beginning ----------------------------------------------------------------------------------------------------

    def _recall(self, gateway: Sender, mark: Mark, now: float) -> None:
        self._settled = max(self._settled, mark.memory.settled)
        if self.doing is Doing.STARTING:
            self._marks[gateway] = mark, now
        elif mark.memory.interval > self._number:
            self._number = mark.memory.interval + 1  # one that was silent then knows of later ones

    def _start(self, now: float) -> list[Effect]:
        """Go on where another daemon ended, if there was one."""
        newest = max((mark.memory for mark, _ in self._marks.values()), key=lambda one: one.interval, default=None)
        if newest is None:
            self._begin(now)
            return [Note(f"began; the first decision is in {self._interval.seconds:.0f} s")]
        marks = {gateway: one for gateway, one in self._marks.items() if one[0].memory.interval == newest.interval}
        self._number, self._interval.estimate = newest.interval, newest.estimate
        self._interval.set(newest.interval_s)
        self._roster.wanted |= self._slos.keys() & set(newest.services)
        self._seen = TrafficSeen.of(self._spec, newest)
        self._began_at = min(heard_at - mark.age_s for mark, heard_at in marks.values())
        starts = {gateway: {one.name: one for one in mark.services} for gateway, (mark, _) in marks.items()}
        self._monitor.resume(self._began_at, starts)
        self._marks.clear()
        self._listen_again(now)
        return [Note(f"goes on with interval {self._number}, which began {now - self._began_at:.0f} s ago")]

    def _begin(self, now: float) -> None:
        """Begin another interval."""
        self._number += 1
        self._began_at, self._num_tested = now, 0
        self._monitor.begin(now)
        self._listen_again(now)

    def _listen_again(self, now: float) -> None:
        self.doing = Doing.LISTENING
        self._deadline = max(now, min(now + LOOK_S, self._ends_at))

    @property
    def _ends_at(self) -> float:
        return self._began_at + self._interval.seconds

    # --- while an interval lasts --------------------------------------------------------------------------------------

    def _listen(self, now: float) -> list[Effect]:
        self._listen_again(now)
        if self._spec.mode is PlacementMode.OFF:
            if now >= self._ends_at:
                self._begin(now)
            return []
        effects = self._take_up(now) or self._restore(now)
        if not effects and self._devices.is_changing:
            self._deadline = now + LOOK_S  # nobody knows yet for which engines to plan
        elif not effects and (now >= self._ends_at or self._has_shifted(now)):
            return self._end_interval(now)
        return effects

    def _has_shifted(self, now: float) -> bool:
        """Whether the interval is long enough to plan for, and a part of it that is over shows other traffic."""
        num_looks = self._monitor.num_looks
        if now < self._began_at + self._spec.shortest_s or num_looks <= self._num_tested:
            return False
        self._num_tested = num_looks
        return self._seen.has_changed(self._monitor.parts(now))

    def _take_up(self, now: float) -> list[Effect]:
        """A plan that all engines know of, and that is not carried out."""
        known = announced(ready := self._roster.ready)
        number = max((place.number for place in known.values()), default=0)
        if number <= self._settled:
            return []
        if is_in_force(known, ready):
            self._settled = number
            self._begin(now)
            return [Note(f"plan {number} is in force, somebody else carried it out")]
        if self._spec.mode is PlacementMode.SHADOW:
            return []
        return self._change_to(self._changeover(number, known, now), "all engines know of it", now)

    def _restore(self, now: float) -> list[Effect]:
        """A service that lost its last engine is given another one."""
        due = self._unserved.due(self._roster, self._number, now)
        if not due:
            return []
        why = f"no engine serves {', '.join(due)}"
        wanted = restored(self.plan, due, self._topology, self._obstacles())
        if wanted is None or self._spec.mode is PlacementMode.SHADOW:
            return self._past.fail(why if wanted is not None else f"{why}, and none that is ready can load it")
        wanted = replace(wanted, number=self._next_number)
        return self._change_to(self._changeover(wanted.number, places(wanted), now), why, now)

    def _end_interval(self, now: float) -> list[Effect]:
        present, observed = self.plan, self._monitor.observed(now)
        pending = Pending(self._number, now - self._began_at, present.number)
        if not present.services:
            return self._idle(pending, "no engine is ready", now)
        seen = self._seen.add(self._monitor.parts(now))
        question = make_question(
            self._number,
            present,
            self._roster.remembered,
            seen,
            self._slos,
            Conduct.of(self._topology),
            services=self._roster.wanted,
            threshold=Threshold.of(self._spec),
            improve_s=self._spec.improve_s,
            max_services=self._spec.max_services,
            seed=self._seed + self._number,
            obstacles=self._obstacles(),
            num_intervals=self._seen.num_intervals,
            waiting=waiting(self._monitor.present(), self._roster.statuses.values()),
            ways=self._devices.ways(self._number),
            shifts=self._seen.shifts(self._spec.improve_s, self._interval.seconds),
        )
        if not self._seen.has_any:
            return self._idle(pending, "nobody asked for anything", now)
        achieved = question.achieved(observed)
        self._interval.achieved(achieved.normalized_latency)
        self._begin(now)
        self._pending, self._asked_at = replace(pending, question=question, achieved=achieved), now
        self.doing, self._deadline = Doing.SEARCHING, now + LOOK_S
        return [*map(Note, self._devices.not_known(self._roster.remembered)), Ask(question)]

    def _obstacles(self) -> Obstacles:
        return Obstacles.of(self._roster.statuses, self._roster.remembered, self._failed_loads.lately(self._number))

    def _idle(self, pending: Pending, why: str, now: float) -> list[Effect]:
        self._begin(now)
        return self._past.decide(without_plan(pending, "idle", why), now)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _search_on(self, now: float) -> list[Effect]:
        """Until there is an answer, it takes too long, or what is searched for is over."""
        assert self._pending is not None, "something is searched for"
        number, waited_s = self._pending.interval, now - self._asked_at
        self._deadline = now + LOOK_S
        if waited_s > self._spec.improve_s + SEARCH_S:
            return [Abandon(number), *self.answered(number, SearchFailed(f"no answer after {waited_s:.0f} s"), now)]
        effects = self._take_up(now) or self._restore(now)
        if self.doing is not Doing.SEARCHING:
            self._pending = None
            return [Abandon(number), *effects]
        return effects

    def _take(self, pending: Pending, answer: Answer, search_s: float, now: float) -> list[Effect]:
        proposal, number = answer.proposal, self._next_number
        decision = with_plan(pending, answer, self.plan, number, search_s)
        effects = self._past.decide(decision, now)
        self._interval.estimate = proposal.present.normalized_latency
        if proposal.verdict is not Verdict.REPLACE or self._spec.mode is PlacementMode.SHADOW:
            return effects
        self._interval.estimate, self._awaited = proposal.wanted.normalized_latency, decision
        change = self._changeover(number, decision.places, now)
        return [*effects, *self._change_to(change, decision.reason, now)]

    # --- changes ------------------------------------------------------------------------------------------------------

    @property
    def _next_number(self) -> int:
        return max(self.plan.number, self._settled) + 1

    def _changeover(self, number: int, wanted: Mapping[str, EnginePlace], now: float) -> Changeover:
        regroup = self._devices.change(self.plan.engines, wanted, now, self._patience.repeat_s)
        return Changeover(number, wanted, self._patience, now, lengths=self._seen.usual_lengths(), regroup=regroup)

    def _change_to(self, change: Changeover, why: str, now: float) -> list[Effect]:
        self._change, self.doing = change, Doing.CHANGING
        return [Note(f"plan {change.number} is to be carried out: {why}"), *self._carry_on(now)]

    def _carry_on(self, now: float) -> list[Effect]:
        change = self._change
        assert change is not None
        self._deadline, doing = now + ORDER_S, change.doing
        effects: list[Effect] = [
            Tell(*one) for one in change.orders(self._roster.statuses, now, self._devices.children)
        ]
        if change.is_over or change.is_draining:
            return [*effects, *self._end_change(change, now)]
        return effects if change.doing == doing else [*effects, Note(f"plan {change.number}: {change.doing}")]

    def _end_change(self, change: Changeover, now: float) -> list[Effect]:
        decision, self._awaited, self._change = self._awaited, None, None
        self._settled = max(self._settled, change.number)
        self._begin(now)
        if change.stage is not Stage.FAILED:
            self._past.change(decision, now)
            return [Note(f"plan {change.number} is carried out")]
        self._past.give_up_change()
        self._devices.did_not_begin(change.not_begun, self._number)
        self._roster.wanted |= {name for place in change.places.values() for name in place.services}
        self._interval.estimate = None
        if self.plan.number <= change.number:  # else somebody has a newer plan, and that is no reason to wait
            self._interval.set(BACK_OFF * self._interval.seconds)
        return self._past.fail(f"plan {change.number} was given up: {change.reason}; what was loaded stays")
