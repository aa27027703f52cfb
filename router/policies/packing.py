"""Packing (Aladdin): the fullest engine on which all promises can be kept, so that as few as possible are used.

Placement is online bin packing in several dimensions, and the heuristic is best fit (algorithm 1). Engines are tried
by ``capacity_norm``, largest first. The first that meets constraints b, c, d and e (`router.policies.parts.bins`)
takes the request, else an empty one. If there is none, the request waits, and the gateway says that an engine is
wanted (`GatewayStatus.wanted`). The request is tried again at every change. From half of its promise on it is tried
without the margin that ``theta`` keeps for errors, as it would be refused in the end.

Where engines are split by phase, a prefill engine takes what it can compute in time (c). Of several, the one that is
done first takes it, as packing prompts closer would save nothing. Decode engines are packed by b and e. Engines that
multiplex take what prefill engines cannot have in time.

Nobody knows how long answers will be. Requests that were sent and have not begun are called back from engines that have
more to do than was expected, and sent to those that have less (algorithm 2, `router.policies.parts.error_lines`). What
runs is moved by the engines themselves where a promise is in danger: `[rescheduling]` with the trigger `promise`.

Several gateways may pack a group of engines each (`router.policies.parts.groups`). What does not fit a gateway's own
group, empty engines included, goes to the others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import hypot, inf
from typing import Annotated, Literal, NamedTuple

import msgspec

from mesh.wire.control import PrefillMode, PrefillOrder, Role
from mesh.wire.status import Wanted
from router.policies.capabilities import RecallsRequests, SeesGateways, StaysOutOfLine, UsesLengths, WantsEngines
from router.policies.parts.bins import (
    Knobs,
    Level,
    Levels,
    all_levels,
    capacity_norm,
    checked,
    decode_levels,
    entry_level,
    is_empty,
)
from router.policies.parts.candidates import find_candidates, route
from router.policies.parts.error_lines import ErrorLine, Movable, rebalanced
from router.policies.parts.feasible import FeasibleFirst, left_over
from router.policies.parts.groups import Grouping, Sizes
from router.policies.parts.new_engines import NewEngines
from router.policies.policy import Decision, Dispatch, Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView

MOST_BOUND = 256  # requests that were called back, of which it is remembered where to
MOST_COUNTED = 256  # requests that wait, when engines that are wanted are counted


class PackingParameters(msgspec.Struct, frozen=True):
    """``gamma``: the share of an expected answer that counts as context: 0 keeps TPOT at first only, 1 to the end.

    ``theta``: what prediction errors may leave of the limits on context and on prompts beside decodes.
    ``quantile``: of answers, to go by; 0: their mean.
    ``prefill``: prompts are computed before decodes, as in the paper, or in their slack (docs/concepts/elastic.md).
    ``prompts``: decodes are left the time that prompts will take beside them; false is the paper to the letter.
    ``rebalance``: call back what has not begun, where answers came out longer than expected.
    ``excess``: more engines that gateways may take to pack in groups, each in its own: 0.1 is a tenth, 0 is one group.
    ``largest_group``: engines that one decision looks at, at most, where ``excess`` allows groups.
    """

    gamma: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    theta: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    quantile: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    prefill: Literal["first", "slack"] = "first"
    prompts: bool = True
    rebalance: bool = True
    excess: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.0
    largest_group: Annotated[int, msgspec.Meta(ge=1)] = 512

    def __post_init__(self) -> None:
        if self.excess and (sizes := Sizes.of(self.excess, self.largest_group)).smallest > sizes.largest:
            raise ValueError(
                f"an excess of {self.excess:g} takes groups of {sizes.smallest} engines or more, "
                f"and largest_group is {sizes.largest}"
            )


class _Fit(NamedTuple):
    """An engine that takes a request, and how far its constraints are used up then."""

    engine: EngineView
    levels: Sequence[tuple[str, Level]]


class Packing(Policy, WantsEngines, FeasibleFirst, StaysOutOfLine):
    name = "packing"

    def __init__(self, parameters: PackingParameters) -> None:
        self._knobs = Knobs(parameters.gamma, parameters.theta, parameters.prefill == "slack", parameters.prompts)
        self._without_margin = replace(self._knobs, theta=1.0)
        self._error_lines = _ErrorLines()
        self._grouping = Grouping(Sizes.of(parameters.excess, parameters.largest_group)) if parameters.excess else None
        self.capabilities = (
            UsesLengths(parameters.quantile or None),
            *([self._error_lines] if parameters.rebalance else []),
            *([SeesGateways()] if parameters.excess else []),
        )

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        failed: set[str] = set()
        dispatch = self._in_group(request, found, view, now) or self._pack(request, found, now, self._knobs, failed)
        if dispatch is None and 2 * now >= request.arrived_at + request.deadline:
            dispatch = self._pack(request, found, now, self._without_margin, set())
        return dispatch or Wait(f"no engine fits, by constraint {', '.join(sorted(failed))}")

    def _in_group(self, request: RequestView, found: Candidates, view: ClusterView, now: float) -> Dispatch | None:
        """Into this gateway's group. What was called back goes where it was meant to, whosever group that is."""
        if self._grouping is None or request.id in self._error_lines.bound_for:
            return None
        group = self._grouping.group_for(request.id, view.peers)
        dispatch = self._pack(request, found.among(request.service, group), now, self._knobs, set())
        return None if dispatch is None else msgspec.structs.replace(dispatch, rule=f"{dispatch.rule} of its group")

    def _pack(
        self, request: RequestView, found: Candidates, now: float, knobs: Knobs, failed: set[str]
    ) -> Dispatch | None:
        return self._split(request, found, now, knobs, failed) or self._together(request, found, now, knobs, failed)

    # --- both phases on one engine ------------------------------------------------------------------------------------

    def _together(
        self, request: RequestView, found: Candidates, now: float, knobs: Knobs, failed: set[str]
    ) -> Dispatch | None:
        engines = found.multiplex or (() if found.decode is not found.prefill else found.prefill)

        def levels_of(engine: EngineView) -> Levels:
            return all_levels(request, engine, knobs, now)

        fit = self._best_fit(request, engines, levels_of, failed)
        return None if fit is None else self._route(request, fit.engine, fit, now)

    # --- a prefill engine, then a decode engine -----------------------------------------------------------------------

    def _split(
        self, request: RequestView, found: Candidates, now: float, knobs: Knobs, failed: set[str]
    ) -> Dispatch | None:
        if not found.prefill or found.decode is found.prefill:
            return None
        backlogs_s = [engine.wait_s(request.service, now) for engine in found.prefill]
        prefill_engine = found.prefill[backlogs_s.index(min(backlogs_s))]
        in_time = entry_level(request, prefill_engine, knobs, now)
        if not in_time.holds:
            failed.add("c")
            return None

        def levels_of(engine: EngineView) -> Levels:
            return decode_levels(request, engine, knobs)

        fit = self._best_fit(request, found.decode, levels_of, failed)
        if fit is None:
            return None
        return self._route(request, prefill_engine, _Fit(fit.engine, [*fit.levels, ("c", in_time)]), now)

    def _best_fit(
        self,
        request: RequestView,
        engines: Sequence[EngineView],
        levels_of: Callable[[EngineView], Levels],
        failed: set[str],
    ) -> _Fit | None:
        """Algorithm 1. One that was called back tries first where it was meant to go."""
        service, gamma, bound_for = request.service, self._knobs.gamma, self._error_lines.bound_for.get(request.id)
        demands = [engine.services[service].demand for engine in engines]
        # `capacity_norm`, spelt out: it is asked for every engine in every decision
        norms = [hypot(one.num_requests, one.prompt_tokens + gamma * one.answer_tokens) for one in demands]
        if bound_for is not None:
            norms = [inf if engine.id == bound_for else norm for engine, norm in zip(engines, norms, strict=True)]
        empty: EngineView | None = None
        for number in sorted(range(len(norms)), key=norms.__getitem__, reverse=True):  # the first of equals first
            engine = engines[number]
            if is_empty(engine):
                empty = empty or engine
                continue
            name, levels = checked(levels_of(engine))
            if name is None:
                return _Fit(engine, levels)
            failed.add(name)
        return None if empty is None else _Fit(empty, list(levels_of(empty)))

    def _route(self, request: RequestView, prefill_engine: EngineView, fit: _Fit, now: float) -> Dispatch:
        decode_engine = fit.engine
        pool = decode_engine.services[request.service]
        numbers = {"capacity_norm": capacity_norm(pool.demand, self._knobs.gamma)}
        numbers["expected_tokens"] = request.answer_tokens
        ttft_s = inf
        for name, level in fit.levels:
            ttft_s = level.used if name == "c" else ttft_s
            numbers[f"{name}_used"] = level.used
            if level.limit < inf:
                numbers[f"{name}_limit"] = level.limit
        return route(
            request,
            "an empty engine" if is_empty(decode_engine) else "best fit",
            prefill_engine,
            decode_engine,
            now,
            mode=PrefillMode.SLACK if self._knobs.in_slack else PrefillMode.FIRST,
            order=PrefillOrder.DEADLINE if self._knobs.in_slack else PrefillOrder.ARRIVAL,
            predicted_ttft_s=ttft_s if self._knobs.in_slack and ttft_s < inf else None,
            numbers=numbers,
        )

    # --- engines that are wanted --------------------------------------------------------------------------------------

    def wanted(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[Wanted]:
        """Algorithm 1 goes on with new workers: how many of them those that wait would fill, by service and role."""
        counts: dict[tuple[str, Role], NewEngines] = {}
        late = left_over(waiting[:MOST_COUNTED], view, now)
        for request in waiting[:MOST_COUNTED]:
            found = find_candidates(request, view)
            if not isinstance(found, Candidates):
                continue
            for role, template in self._short_of(request, found, is_late=request.id in late):
                engines = counts.setdefault((request.service, role), NewEngines(template, self._knobs))
                engines.add(request, now)
        return [
            Wanted(service, role, engines.num_requests, engines.num_engines)
            for (service, role), engines in counts.items()
        ]

    def _short_of(self, request: RequestView, found: Candidates, *, is_late: bool) -> Iterable[tuple[Role, EngineView]]:
        """Roles of which one more engine would let it in, and an engine to make it like. ``is_late``: it will be, if
        all wait for those prefill engines that there are.
        """
        if found.prefill and found.decode is not found.prefill:
            decode_engine = self._best_fit(
                request, found.decode, lambda engine: decode_levels(request, engine, self._knobs), set()
            )
            if decode_engine is None:
                yield found.decode[0].role, found.decode[0]
            elif is_late:
                yield Role.PREFILL, found.prefill[0]
        else:
            first = found.prefill_engines[0]
            yield first.role, first


class _ErrorLines(RecallsRequests):
    """Algorithm 2. ``bound_for``: where it wants those that it called back."""

    def __init__(self) -> None:
        self.bound_for: dict[str, str] = {}

    def recall(
        self, not_begun: Mapping[str, Sequence[RequestView]], view: ClusterView, now: float
    ) -> Sequence[RequestView]:
        moves: dict[str, str] = {}
        requests = {request.id: request for those in not_begun.values() for request in those}
        for service in dict.fromkeys(request.service for request in requests.values()):
            engines = [e for e in view.serving(service) if e.role is not Role.PREFILL or e.id in not_begun]
            lines = {engine.id: _line(engine, service) for engine in engines}
            movable = [
                Movable(request.id, engine, request.answer_tokens)
                for engine, those in not_begun.items()
                for request in those
                if request.service == service and engine in lines
            ]
            moves |= {move.request: move.to for move in rebalanced(lines, movable)}
        self.bound_for = dict([*self.bound_for.items(), *moves.items()][-MOST_BOUND:])
        return [requests[request] for request in moves]


def _line(engine: EngineView, service: str) -> ErrorLine:
    pool = engine.services[service]
    cost, demand = pool.decode_cost, pool.demand
    return ErrorLine(cost.per_context_token_s, cost.per_request_s, demand.error_tokens, demand.error_requests)


ENTRY = PolicyEntry("packing", lambda parameters, _: Packing(parameters), PackingParameters)
