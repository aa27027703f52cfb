"""Elastic multiplexing: prefills flow into the slack of decodes in pieces, as it accrues. See concepts/policies.md.

Tropical asks that a whole prefill fit into the slack that the decodes have now. But every step that runs faster than
its promise adds slack: of a step of d seconds under a promise of T, T - d is left for prompts. A decode engine that
spends exactly that on chunks of a prefill computes W seconds of it within

    F(W) = W                              if W <= S, the slack saved up until now
    F(W) = S + (W - S) * T / (T - d)      beyond it

and breaks no promise. The engine's local scheduler cuts the chunks, for it knows the slack of each step. This policy
predicts F for every engine and takes the one where the first token comes first, if that is in time. A prefill engine
decodes nothing, so F(W) = W there.

Of the requests that wait it serves as many as can make it: see `router.policies.parts.feasible`.
"""

from collections.abc import Sequence
from math import inf
from operator import attrgetter
from typing import Annotated

import msgspec

from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.capabilities import AllowsLateness, StaysOutOfLine, UsesPrefixes
from router.policies.parts.candidates import find_candidates, route
from router.policies.parts.feasible import FeasibleFirst
from router.policies.parts.outlook import alone_s, look_ahead, own_work_s, prefill_speed
from router.policies.parts.promises import Margins, errors_of
from router.policies.parts.roles import RoleBalancer
from router.policies.parts.soonest import could_have_made_it, own_works_s, soonest_first
from router.policies.policy import Decision, GiveUp, Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView

Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]


class ElasticParameters(msgspec.Struct, frozen=True):
    """``watermark``: the fraction of KV blocks in use from which a decode engine takes nothing new.

    ``headroom``: the fraction of a TPOT promise that a decode step may take once another request has joined it.
    ``margin``: steps are taken to be longer by this share at least, and by what predictions were wrong of late.
    ``depth``: prefills that may come before its own on an engine; behind more of them it waits in the gateway.
    ``grace_s``: how long after its deadline a request may still wait for an engine that prefills nothing else.
    ``flips``: engines change roles where one phase runs short while the other has engines to spare.
    """

    watermark: Fraction = 0.9
    headroom: Fraction = 1.0
    margin: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.02
    depth: Annotated[int, msgspec.Meta(ge=1)] = 2
    grace_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    flips: bool = False


class _Option(msgspec.Struct, frozen=True):
    """A way to serve a request: its prefill ends ``finish_s`` from now, and ``decode_engine`` goes on with it."""

    finish_s: float
    prefill_engine: EngineView
    decode_engine: EngineView


class Elastic(Policy, FeasibleFirst, UsesPrefixes, StaysOutOfLine):
    def __init__(self, parameters: ElasticParameters) -> None:
        self._parameters = parameters
        self._margins = Margins(parameters.watermark, parameters.headroom, parameters.margin)
        self.grace_s = parameters.grace_s
        lateness = AllowsLateness(parameters.grace_s)
        self.capabilities = (lateness, RoleBalancer()) if parameters.flips else (lateness,)

    @property
    def name(self) -> str:
        return "elastic"

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        option, soonest_s = self._best(request, found, now)
        is_late = now + soonest_s > request.deadline
        if is_late:
            return self._decide_late(request, found, now + soonest_s - request.deadline, now)
        if option is None:
            return Wait("engines have prefills that come first, or no room for another decode")
        if now + option.finish_s > request.deadline:
            return Wait("the engines that could make it have prefills that come first")
        return self._dispatch(request, option, now)

    def _decide_late(self, request: RequestView, found: Candidates, late_s: float, now: float) -> Decision:
        """An engine without prefills may have it if a late answer is wanted, or no engine could ever have been in time.
        Else it is refused: its decode would take the place of one that is in time.
        """
        uncached_s = own_work_s(found.prefill_engines[0], request, cached=0)
        if not (self.grace_s or request.may_be_late or not could_have_made_it(request, found, uncached_s)):
            return GiveUp(f"its first token would come {late_s:.2f} s too late")
        option = self._soonest_idle(request, found, now)
        if option is None:
            return Wait("late: all engines have other prefills")
        return self._dispatch(request, option, now)

    def _best(self, request: RequestView, found: Candidates, now: float) -> tuple[_Option | None, float]:
        """Where the first token comes first of the engines that take it now; and in how long, at the earliest, of all.

        If no decode engine has room, prefill engines may keep what they prefill: roles are a habit, not a wall. Engines
        come in the order of when they would be done at full speed: the first that needs longer than the best one found
        is the end.
        """
        best: _Option | None = None
        prefill_engines, uncached_s = found.prefill_engines, own_work_s(found.prefill_engines[0], request, cached=0)
        may_be_late = self.grace_s or request.may_be_late or not could_have_made_it(request, found, uncached_s)
        soonest_s, within_s = inf, inf if may_be_late else request.deadline - now
        decode_engine, own_s = _Decoder(self, request, found, now), own_works_s(request, found, uncached_s)
        for about_s, number in soonest_first(request, prefill_engines, own_s, now):
            if best is not None and about_s >= best.finish_s:
                break
            soonest_s = min(soonest_s, about_s)
            if about_s > within_s:
                break
            engine = prefill_engines[number]
            is_alone = not engine.prefills and engine.line_s(request.service, now) is None
            if best is not None and is_alone and alone_s(engine, own_s[number], now) >= best.finish_s:
                continue
            option = self._option(request, engine, None if found.keeps(engine) else decode_engine.find(), now)
            if option is not None and (best is None or option.finish_s < best.finish_s):
                best = option
        return best, soonest_s

    def _soonest_idle(self, request: RequestView, found: Candidates, now: float) -> _Option | None:
        """Of the engines that prefill nothing else: where those that are late may go."""
        decode_engine = _Decoder(self, request, found, now)
        idle = [engine for engine in found.prefill_engines if not engine.num_prefills]
        finishes = [(alone_s(engine, own_work_s(engine, request), now), number) for number, engine in enumerate(idle)]
        for finish_s, number in sorted(finishes):
            if finish_s == inf:
                return None
            option = self._option(
                request, idle[number], None if found.keeps(idle[number]) else decode_engine.find(), now
            )
            if option is not None:
                return option
        return None

    def _option(
        self, request: RequestView, engine: EngineView, decode_engine: EngineView | None, now: float
    ) -> _Option | None:
        """Prefilled there, then handed over to ``decode_engine``; None: kept."""
        outlook = look_ahead(engine, request, now)
        if outlook.num_ahead >= self._parameters.depth or outlook.makes_late:
            return None
        if decode_engine is None and not self.can_join(request, engine, now):
            return None
        return _Option(outlook.finish_s, engine, decode_engine or engine)

    def can_join(self, request: RequestView, engine: EngineView, now: float) -> bool:
        """Return whether it has a place and memory for the request, and time: all decodes there would still keep their
        promises.

        An engine that decodes nothing takes any; and who is late already finds no promise in its way but others'.
        """
        pool = engine.services[request.service]
        if pool.watermark >= self._margins.watermark or not pool.can_hold(request.num_tokens + 1):
            return False
        if not engine.has_place(request.service):
            return False
        if not engine.num_running and not engine.coming_steps_s(request.service):
            return True
        promise_s = engine.tpot_slo_s if now > request.deadline else min(engine.tpot_slo_s, request.tpot_slo_s)
        step_s = engine.joined_step_s(request.service, request.num_tokens)
        return step_s * errors_of(engine, request.service, self._margins).step <= self._margins.headroom * promise_s

    @staticmethod
    def _dispatch(request: RequestView, option: _Option, now: float) -> Decision:
        prefill_engine, decode_engine = option.prefill_engine, option.decode_engine
        rule = "prefilled beside decodes" if prefill_engine is decode_engine else "prefilled and handed over"
        slack_s = prefill_engine.slack_s(now)
        numbers = {} if slack_s == inf else {"slack_s": slack_s, "prefill_speed": prefill_speed(prefill_engine)}
        return route(
            request,
            rule,
            prefill_engine,
            decode_engine,
            now,
            mode=PrefillMode.SLACK,
            order=PrefillOrder.DEADLINE,
            predicted_ttft_s=option.finish_s,
            numbers=numbers,
        )


class _Decoder:
    """Where steps are shortest, of the engines that a request may join: looked for once, if anybody asks."""

    __slots__ = ("_elastic", "_found", "_is_known", "_known", "_now", "_request")

    def __init__(self, elastic: Elastic, request: RequestView, found: Candidates, now: float) -> None:
        self._elastic, self._request, self._found, self._now = elastic, request, found, now
        self._known: EngineView | None = None
        self._is_known = False

    def find(self) -> EngineView | None:
        if not self._is_known:
            self._known, self._is_known = self._find(), True
        return self._known

    def _find(self) -> EngineView | None:
        first = _shortest_step(self._found.decode)
        if self._can_take(first):
            return first
        return next(filter(self._can_take, sorted(self._found.decode, key=_by_step)), None)

    def _can_take(self, engine: EngineView) -> bool:
        return self._elastic.can_join(self._request, engine, self._now)


def _shortest_step(engines: Sequence[EngineView]) -> EngineView:
    """The first one by `_by_step`: few have the shortest step, so few are looked at closely."""
    steps_s = [engine.decode_step_s for engine in engines]
    least_s = min(steps_s)
    if steps_s.count(least_s) == 1:
        return engines[steps_s.index(least_s)]
    return min([engine for engine, step_s in zip(engines, steps_s, strict=True) if step_s == least_s], key=_by_step)


_by_step = attrgetter("decode_step_s", "num_tokens", "id")


ENTRY = PolicyEntry("elastic", lambda parameters, _: Elastic(parameters), ElasticParameters)
