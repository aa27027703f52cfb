"""Tropical: SLO-aware multiplexing of prefill and decode (DAC 2025).

For a prefill of length L with predicted time p(L) and deadline d = arrival + TTFT SLO:

1. A prefill engine that is idle: send it there. There is no deadline test: nothing could be faster.
2. A prefill engine that is running, with nothing waiting, and ``PredExeEndTime + p(L) <= d``: queue it there.
3. A multiplexing engine whose watermark is below its threshold and whose minimum slack over all running decodes is
   ``> p(L)``: prefill it there and keep it; no KV moves.
4. Otherwise it waits, is tried again on every change, and is rejected when its deadline passes.

Before that, a request goes to a multiplexing engine whose memory is held by less urgent ones: they give way there. The
paper has no priorities.

Of several engines that a rule allows, ``balance`` chooses: by default the one with the fewest tokens in flight, as in
the paper, whose artifact names the other two as well. The paper leaves some things open. Prefills that already wait on
a multiplexing engine spend its slack first, and behind them the deadline counts as in rule 2; with nothing ahead it
does not, as in rule 1. The engine that will decode after rules 1 and 2 must be below its watermark, too, or
the KV would have nowhere to go. And no engine takes a decode with which all its steps would take longer than a token
was promised to: in overload, everybody's promise would break.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec

from mesh.wire.control import PrefillMode
from router.policies.capabilities import StaysOutOfLine, UsesPrefixes
from router.policies.parts.balance import MAKERS, BalanceName
from router.policies.parts.candidates import find_candidates, route
from router.policies.parts.outlook import stands_in_line
from router.policies.parts.roles import RoleBalancer
from router.policies.policy import Decision, Dispatch, Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class TropicalParameters(msgspec.Struct, frozen=True):
    """``watermark``: the fraction of KV blocks in use from which a decode engine takes nothing new.

    ``headroom``: the fraction of a TPOT promise that a decode step may take once all that were sent there decode.
    ``flips``: engines change roles where one phase runs short while the other has engines to spare.
    ``balance``: of engines that a rule allows, infaas takes the one with the fewest tokens in flight, round_robin the
    next one, cache_aware the one that has most of the prompt cached.
    """

    watermark: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    headroom: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    flips: bool = False
    balance: BalanceName = "infaas"


class Tropical(Policy, StaysOutOfLine):
    name = "tropical"

    def __init__(self, parameters: TropicalParameters) -> None:
        self._watermark, self._headroom = parameters.watermark, parameters.headroom
        self._balance = MAKERS[parameters.balance]()
        flips = (RoleBalancer(),) if parameters.flips else ()
        self.capabilities = (*flips, UsesPrefixes()) if parameters.balance == "cache_aware" else flips

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        dispatch = (
            self._rule_1(request, found, now)
            or self._rule_2(request, found, now)
            or self._rule_3(request, found, now)
            or self._precedence(request, found, now)
        )
        if dispatch is None:
            return Wait(self._why_wait(request, found))
        self._balance.sent(dispatch)
        return dispatch

    def _rule_1(self, request: RequestView, found: Candidates, now: float) -> Dispatch | None:
        return self._hand_over("1: idle prefill engine", request, _is_idle, found, now)

    def _rule_2(self, request: RequestView, found: Candidates, now: float) -> Dispatch | None:
        def in_time(engine: EngineView) -> bool:
            return engine.num_prefills == 1 and _ends_in_time(engine, request, now)

        return self._hand_over("2: queued behind one prefill", request, in_time, found, now)

    def _hand_over(
        self, rule: str, request: RequestView, suits: Callable[[EngineView], bool], found: Candidates, now: float
    ) -> Dispatch | None:
        prefill_engine = self._balance.prefill_engine(request, found.prefill, suits)
        if prefill_engine is None:
            return None
        decode_engine = self._balance.decode_engine(
            found.decode_engines_for(prefill_engine), lambda engine: self._has_room(engine, request)
        )
        return None if decode_engine is None else route(request, rule, prefill_engine, decode_engine, now)

    def _rule_3(self, request: RequestView, found: Candidates, now: float) -> Dispatch | None:
        def has_slack(engine: EngineView) -> bool:
            return (
                self._has_room(engine, request)
                and _spare_s(engine, now) > _prefill_s(engine, request)
                and (_is_free(engine, request, now) or _ends_in_time(engine, request, now))
            )

        engine = self._balance.only_engine(request, found.multiplex, has_slack)
        if engine is None:
            return None
        rule, slack_s = "3: multiplexed in slack", _spare_s(engine, now)
        numbers = {"slack_s": slack_s}
        return route(request, rule, engine, engine, now, mode=PrefillMode.FIRST, multiplex=True, numbers=numbers)

    def _precedence(self, request: RequestView, found: Candidates, now: float) -> Dispatch | None:
        """If it waited here, it would be passed by what was preempted there, and is less urgent than it."""

        def makes_room(engine: EngineView) -> bool:
            pool, num_tokens = engine.services[request.service], request.num_tokens + 1
            return not self._has_room(engine, request) and pool.can_make_room(num_tokens, request.priority)

        engine = self._balance.only_engine(request, found.multiplex, makes_room)
        return None if engine is None else route(request, "before less urgent ones", engine, engine, now)

    def _has_room(self, engine: EngineView, request: RequestView) -> bool:
        pool = engine.services[request.service]
        if pool.watermark >= self._watermark or not pool.can_hold(request.num_tokens + 1):
            return False
        if not engine.has_place(request.service):
            return False
        promise_s = min(engine.tpot_slo_s, request.tpot_slo_s)
        return not engine.num_requests or _joined_step_s(engine, request) <= self._headroom * promise_s

    def _why_wait(self, request: RequestView, found: Candidates) -> str:
        if not any(self._has_room(engine, request) for engine in found.decode):
            return "no decode engine has room in its KV pool"
        return "prefill engines are busy and no decode engine has slack"


def _is_idle(engine: EngineView) -> bool:
    return engine.num_prefills == 0


def _is_free(engine: EngineView, request: RequestView, now: float) -> bool:
    return engine.num_prefills == 0 and not stands_in_line(engine, request, now)


def _ends_in_time(engine: EngineView, request: RequestView, now: float) -> bool:
    if stands_in_line(engine, request, now):
        return False
    return now + engine.wait_s(request.service, now) + _prefill_s(engine, request) <= request.deadline


def _prefill_s(engine: EngineView, request: RequestView) -> float:
    return engine.prefill_s(request.service, request.num_tokens, request.cached.get(engine.id, 0))


def _joined_step_s(engine: EngineView, request: RequestView) -> float:
    """Predict a decode step once all that were sent there decode, and the request with them."""
    num_coming = engine.num_requests - engine.num_running
    return engine.joined_step_s(request.service, request.num_tokens) + num_coming * (
        engine.services[request.service].decode_cost.per_request_s
    )


def _spare_s(engine: EngineView, now: float) -> float:
    """What the running decodes can still afford; infinite when nothing decodes."""
    return engine.slack_s(now) - engine.backlog_s(now)


ENTRY = PolicyEntry("tropical", lambda parameters, _: Tropical(parameters), TropicalParameters)
