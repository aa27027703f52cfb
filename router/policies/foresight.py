"""Foresight: a request goes where all promises will still be kept when the answers end. See concepts/foresight.md.

Tropical and `elastic` spend the slack that decodes have saved by now. This policy also counts what they will save until
their answers end, as Aladdin does when it packs, and leaves it to no mean: what counts is a length that few answers are
shorter than. It compares ways to serve a request, an engine and what is done there:

- prefill it, whole if the slack to come allows it, and keep it;
- prefill it and hand it over, to where it costs the others least.

A way is open if the request's own two promises will be kept, and those of all that decode, prefill or wait there
(`router.policies.parts.promises`). Of these ways the one is taken by which the answer is expected to end first. Where
services take turns by a discipline, the time for which it keeps others in line counts as well. If no way is open, the
request waits in the gateway, where it costs nobody anything, until one opens or it can no longer be in time. Of the
requests that wait, as many as can make it come first (`router.policies.parts.feasible`).
"""

from collections.abc import Sequence
from heapq import nsmallest
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Annotated

import msgspec

from engines.scheduling.demand import FAR
from mesh.wire.control import PrefillMode, PrefillOrder, Role
from router.policies.capabilities import AllowsLateness, StaysOutOfLine, UsesLengths, UsesPrefixes
from router.policies.parts.candidates import find_candidates, route
from router.policies.parts.feasible import FeasibleFirst
from router.policies.parts.outlook import own_work_s
from router.policies.parts.promises import (
    Errors,
    Margins,
    Prospect,
    errors_of,
    first_token,
    joined_step_s,
    may_join,
    own_spare_s,
    spare_s,
)
from router.policies.parts.roles import RoleBalancer
from router.policies.parts.soonest import could_have_made_it, own_works_s, soonest_first
from router.policies.policy import Decision, Dispatch, GiveUp, Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView, turn_of

MOST_CLOSELY = 12  # engines that one decision looks at closely, those that might cost the least time
MOST_OPEN = 2  # of those with an open way, that are compared
MOST_DECODERS = 4  # engines that are looked at closely to hand a request over to

Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]


class ForesightParameters(msgspec.Struct, frozen=True):
    """``least``: the share of answers that may be shorter than the length that is counted on.

    ``margin``: predictions are taken to be wrong by this share at least, and by what engines' own were wrong of late.
    ``watermark``: the fraction of KV blocks in use from which an engine decodes nothing new.
    ``headroom``: the fraction of a TPOT promise that a decode step may take once another request has joined it.
    ``grace_s``: how long after its deadline a request may still wait for an engine that prefills nothing else.
    ``flips``: engines change roles where one phase runs short while the other has engines to spare.
    """

    least: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    margin: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.02
    watermark: Fraction = 0.9
    headroom: Fraction = 1.0
    grace_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    flips: bool = False


class _Way(msgspec.Struct, frozen=True):
    """A way to serve a request. Its first token comes in ``finish_s``.

    ``costs_s``: until its answer is expected to end, and of time for which it keeps other services in line.
    ``spare_s``: the least that anybody has left by it.
    """

    finish_s: float
    costs_s: float
    spare_s: float
    prefill_engine: EngineView
    decode_engine: EngineView


class Foresight(Policy, FeasibleFirst, UsesPrefixes, StaysOutOfLine):
    name = "foresight"

    def __init__(self, parameters: ForesightParameters) -> None:
        self._margins = Margins(parameters.watermark, parameters.headroom, parameters.margin)
        self._grace_s = parameters.grace_s
        self.capabilities = (
            UsesLengths(least=parameters.least),
            AllowsLateness(parameters.grace_s),
            *([RoleBalancer()] if parameters.flips else []),
        )

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        uncached_s = own_work_s(found.prefill_engines[0], request, cached=0)
        own_s = own_works_s(request, found, uncached_s)
        way = self._cheapest(request, found, own_s, now)
        if way is not None:
            return _dispatch(request, way, now)
        late_s = now + min(own_s) - request.deadline
        if late_s <= 0:
            return Wait("no engine would keep all promises, its own and those of others")
        if self._grace_s or request.may_be_late or not could_have_made_it(request, found, uncached_s):
            return self._decide_late(request, found, own_s, now)
        return GiveUp(f"its first token would come {late_s:.2f} s too late")

    def _cheapest(self, request: RequestView, found: Candidates, own_s: Sequence[float], now: float) -> _Way | None:
        """The way that costs the least time, of those by which all promises are kept."""
        best: _Way | None = None
        num_open = 0
        engines, decoders, least_s = found.prefill_engines, _Decoders(found), _least_s(request, found, own_s)
        for costs_s, number in islice(soonest_first(request, engines, least_s, now), MOST_CLOSELY):
            if num_open == MOST_OPEN or (best is not None and costs_s >= best.costs_s):
                break
            engine = engines[number]
            errors = errors_of(engine, request.service, self._margins)
            came = first_token(engine, request, own_s[number], errors.prefill, now)
            if came is None:
                continue
            way = self._way(request, engine, own_s[number], came, errors, decoders)
            if way is not None:
                num_open += 1
                best = way if best is None or way.costs_s < best.costs_s else best
        return best

    def _way(
        self,
        request: RequestView,
        engine: EngineView,
        own_s: float,
        came: Prospect,
        errors: Errors,
        decoders: "_Decoders",
        *,
        late: bool = False,
    ) -> _Way | None:
        """The first open way to go on after its prefill on ``engine``: keep it, or hand it over; None if none is open.

        Engines that only prefill hand over, if there are engines that only decode or it is ``late``, and keep what
        others cannot take.
        """
        prefills_s = engine.known_prefills_s + own_s
        hands_over_first = engine.role is Role.PREFILL and (late or decoders.only_decode)
        kept = None if hands_over_first else self._kept(request, engine, prefills_s, came, errors)
        if kept is not None:
            return kept
        left_s = spare_s(engine, prefills_s, engine.decode_step_s, errors)
        if left_s >= 0:
            for decode_engine in decoders.besides(engine):
                way = self._handed_over(request, engine, decode_engine, came.finish_s, left_s)
                if way is not None:
                    return way
        return self._kept(request, engine, prefills_s, came, errors) if hands_over_first else None

    def _kept(
        self, request: RequestView, engine: EngineView, prefills_s: float, came: Prospect, errors: Errors
    ) -> _Way | None:
        step_s = joined_step_s(engine, request)
        if not may_join(engine, request, step_s, self._margins):
            return None
        own_s = own_spare_s(request, came.after_s, step_s, errors)
        least_s = min(own_s, spare_s(engine, prefills_s, step_s, errors)) if own_s >= 0 else own_s
        return _open_way(request, engine, engine, came.finish_s, step_s, least_s)

    def _handed_over(
        self, request: RequestView, prefill_engine: EngineView, engine: EngineView, finish_s: float, left_s: float
    ) -> _Way | None:
        """``left_s``: to the others on its prefill engine. On ``engine``, prefills that end before it comes do not hold
        it up.
        """
        step_s = joined_step_s(engine, request)
        if not may_join(engine, request, step_s, self._margins):
            return None
        errors, prefills_s = errors_of(engine, request.service, self._margins), engine.known_prefills_s
        own_s = own_spare_s(request, max(0.0, prefills_s - finish_s), step_s, errors)
        least_s = min(left_s, own_s, spare_s(engine, prefills_s, step_s, errors)) if own_s >= 0 else own_s
        return _open_way(request, prefill_engine, engine, finish_s, step_s, least_s)

    def _decide_late(self, request: RequestView, found: Candidates, own_s: Sequence[float], now: float) -> Decision:
        """Of the engines without prefills, the one where its answer ends first may have it, if no promise of others
        breaks by that. Engines that only prefill hand it over: they stay free for the first tokens of others.
        """
        engines, decoders, least_s = found.prefill_engines, _Decoders(found), _least_s(request, found, own_s)
        idle = [(seconds, number) for number, seconds in enumerate(least_s) if not engines[number].num_prefills]
        for _, number in nsmallest(MOST_CLOSELY, idle):
            engine = engines[number]
            errors = errors_of(engine, request.service, self._margins)
            came = Prospect(engine.decode_step_s + own_s[number] * errors.prefill, 0.0)
            way = self._way(request, engine, own_s[number], came, errors, decoders, late=True)
            if way is not None:
                return _dispatch(request, way, now)
        return Wait("late: all engines have other prefills, or decodes that must not wait")


class _Decoders:
    """The engines that one request may be handed over to: looked for once, if anybody asks."""

    __slots__ = ("_engines", "_nearest")

    def __init__(self, found: Candidates) -> None:
        self._engines = found.decode
        self._nearest: list[EngineView] | None = None

    @property
    def only_decode(self) -> bool:
        """Return whether there are engines whose role that is. Those come first."""
        return self._engines[0].role is Role.DECODE

    def besides(self, engine: EngineView) -> list[EngineView]:
        """Return those with the shortest steps but this one."""
        if self._nearest is None:
            self._nearest = nsmallest(MOST_DECODERS + 1, self._engines, key=_by_step)
        return [one for one in self._nearest if one is not engine][:MOST_DECODERS]


def _num_left(request: RequestView) -> int:
    """Tokens that its answer is expected to have yet."""
    return max(1, request.answer_tokens - request.num_generated)


def _least_s(request: RequestView, found: Candidates, own_s: Sequence[float]) -> list[float]:
    """Return what its prefill and its decode steps take on each engine at least, if it is kept there, with the steps by
    which it makes the turn of its service longer (`_counted`, spelt out).
    """
    num, turns = _num_left(request), found.turns
    if turns.count(FAR) == len(turns):  # nobody stands in line anywhere
        return [seconds + num * step_s for seconds, step_s in zip(own_s, found.steps_s, strict=True)]
    return [
        seconds + (num if num <= num_steps else 2 * num - num_steps) * step_s
        for seconds, step_s, num_steps in zip(own_s, found.steps_s, turns, strict=True)
    ]


def _counted(num_left: int, num_steps: int) -> int:
    """Its own steps, and those by which other services stand in line for longer, as the turn of its own would have
    ended after ``num_steps``.
    """
    return num_left + max(0, num_left - num_steps)


def _open_way(
    request: RequestView,
    prefill_engine: EngineView,
    decode_engine: EngineView,
    finish_s: float,
    step_s: float,
    least_s: float,
) -> _Way | None:
    """None if somebody would have too little: ``least_s`` is what anybody has left at least."""
    if least_s < 0:
        return None
    num_counted = _counted(_num_left(request), turn_of(request.service, decode_engine).num_steps)
    return _Way(finish_s, finish_s + num_counted * step_s, least_s, prefill_engine, decode_engine)


_by_step = attrgetter("decode_step_s", "num_tokens", "id")


def _dispatch(request: RequestView, way: _Way, now: float) -> Dispatch:
    is_kept = way.prefill_engine is way.decode_engine
    return route(
        request,
        "kept where it is prefilled" if is_kept else "prefilled and handed over",
        way.prefill_engine,
        way.decode_engine,
        now,
        mode=PrefillMode.FORESEEN,
        order=PrefillOrder.DEADLINE,
        multiplex=bool(way.prefill_engine.foreseen),
        stays=is_kept,
        predicted_ttft_s=way.finish_s,
        numbers={} if way.spare_s == inf else {"spare_s": way.spare_s},
    )


ENTRY = PolicyEntry("foresight", lambda parameters, _: Foresight(parameters), ForesightParameters)
