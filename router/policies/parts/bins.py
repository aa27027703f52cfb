"""Decides whether a request fits an engine by its own costs: Aladdin's constraints b, c, d and e (section 4.2).

b. sum(l_in + gamma l_out) <= theta l_d(b): what all b requests of the batch hold on average leaves its decode steps
   within the tightest TPOT promise. l_d(b) is the context of which a step takes as long as that (equation 4).
c. t_p(sum of new l_in) <= T_pre: this prompt and those that are to be computed before it, within its TTFT promise.
d. t_p(sum of new l_in) <= theta min(T_dec l_out - t_dec): the same prompts within what the running decodes have saved.
e. sum of kv(k) <= M for every step k to come: memory, until all have ended as expected.

Or, ours: prompts flow into slack piece by piece, as `elastic` has it. Then d holds by itself, and c asks when the first
token will come that way.

An empty engine takes whatever it can hold, as a new worker does in algorithm 1: nothing could suit it better. A promise
that not even that could keep is not for others to make room for: it is left out of b and c, and its request is put
where it breaks nobody else's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot, inf
from typing import NamedTuple

from engines.costs.linear import decode_step_s, requests_s
from engines.costs.linear import prefill_s as full_prefill_s
from engines.scheduling.demand import held_tokens, highest_with
from mesh.wire.status import Demand
from router.policies.parts.outlook import has_enough, look_ahead, stands_in_line
from router.view.engine_view import EngineView, RequestView, ServiceView


@dataclass(frozen=True, slots=True)
class Knobs:
    """Parameters of what fits. ``gamma``: the share of an answer that counts as context. ``theta``: what prediction
    errors leave of b and d.

    ``in_slack``: prompts are computed piece by piece in the slack of decodes, instead of before them.
    ``has_prompts``: constraint b leaves the time that prompts will take.
    """

    gamma: float
    theta: float
    in_slack: bool = False
    has_prompts: bool = False


class Level(NamedTuple):
    """How far a constraint is used up: tokens or seconds."""

    used: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.used <= self.limit


Levels = Iterator[tuple[str, Level]]  # by constraint, worked out as they are asked for


def is_empty(engine: EngineView) -> bool:
    return not engine.num_requests and not any(pool.demand.num_requests for pool in engine.services.values())


def capacity_norm(demand: Demand, gamma: float) -> float:
    """Return the norm of a worker's load (section 4.2): the length of (batch size, weighted context)."""
    return hypot(demand.num_requests, demand.prompt_tokens + gamma * demand.answer_tokens)


def answer_of(request: RequestView) -> int:
    """Tokens in all, one more at least."""
    return max(request.answer_tokens, request.num_generated + 1)


def context_level(request: RequestView, engine: EngineView, knobs: Knobs, *, prefills: bool) -> Level:
    """Constraint b, with the request. ``prefills``: the engine computes prompts itself."""
    pool = engine.services[request.service]
    demand = pool.demand
    prompts = demand.prompt_tokens + request.num_tokens - request.num_generated
    context = prompts + knobs.gamma * (demand.answer_tokens + answer_of(request))
    own_s = request.tpot_slo_s
    if own_s < decode_step_s(pool.decode_cost, 1, request.num_tokens):
        own_s = inf
    tightest_s = min(demand.tpot_slo_s, engine.tpot_slo_s, own_s) - _others_s(engine, request.service, knobs)
    if prefills and knobs.has_prompts:
        tightest_s -= prompts_s(request, pool)
    return Level(context, knobs.theta * most_context(pool, demand.num_requests + 1, tightest_s))


def prompts_s(request: RequestView, pool: ServiceView) -> float:
    """Return the seconds of prompts, beside each decode step, if those that end are followed by others like them."""
    demand = pool.demand
    number = demand.num_requests + 1
    prompts = demand.prompt_tokens + request.num_tokens - request.num_generated
    answers = demand.answer_tokens + answer_of(request)
    return number * number * full_prefill_s(pool.prefill_cost, round(prompts / number)) / answers


def most_context(pool: ServiceView, num_requests: int, step_s: float) -> float:
    """l_d: of which a decode step of so many requests takes that long. Equation 4, solved for our cost model."""
    cost = pool.decode_cost
    room_s = step_s - requests_s(cost, num_requests)
    per_token_s = cost.per_context_token_s + cost.per_mean_context_token_s / num_requests
    if room_s < 0:
        return -1.0
    return room_s / per_token_s if per_token_s else inf


def _others_s(engine: EngineView, service: str, knobs: Knobs) -> float:
    """Decode steps of the engine's other services, which take turns with this one."""
    if len(engine.services) == 1:
        return 0.0
    others = [(pool.decode_cost, pool.demand) for name, pool in engine.services.items() if name != service]
    return sum(
        decode_step_s(cost, demand.num_requests, round(demand.prompt_tokens + knobs.gamma * demand.answer_tokens))
        for cost, demand in others
    )


def prefill_level(request: RequestView, engine: EngineView, now: float) -> Level:
    """Return how far constraint c is used up."""
    own_s = prefill_s(request, engine)
    if stands_in_line(engine, request, now):
        return Level(inf, own_s)
    return Level(engine.wait_s(request.service, now) + own_s, _until_due_s(request, engine, own_s, now))


def _until_due_s(request: RequestView, engine: EngineView, own_s: float, now: float) -> float:
    """Infinite where an idle engine could not keep the promise. One that is late, and whose client waits for it all the
    same, goes where nobody's prompt is.
    """
    if own_s > request.deadline - request.arrived_at:
        return inf
    if request.may_be_late and now + own_s > request.deadline:
        return 0.0 if engine.num_prefills else inf
    return request.deadline - now


def finish_level(request: RequestView, engine: EngineView, knobs: Knobs, now: float) -> Level:
    """Constraint c where prompts flow into slack: when its first token comes, and no other prompt is made late by it.

    What it waits for slack is a prediction: ``theta`` leaves room for errors of it. The engine itself sees to it that
    prompts take no more than decodes have saved, which is constraint d.
    """
    outlook, own_s = look_ahead(engine, request, now), prefill_s(request, engine)
    limit_s = _until_due_s(request, engine, own_s, now)
    if limit_s < inf:
        limit_s = min(limit_s, own_s + knobs.theta * (limit_s - own_s))
    has_to_wait = outlook.makes_late or has_enough(outlook.num_ahead, outlook.finish_s - own_s)
    return Level(inf if has_to_wait else outlook.finish_s, limit_s)


def entry_level(request: RequestView, engine: EngineView, knobs: Knobs, now: float) -> Level:
    """Return how far constraint c is used up on an engine that only computes its prompt."""
    if knobs.in_slack:
        return finish_level(request, engine, knobs, now)
    level = prefill_level(request, engine, now)
    return level._replace(used=inf) if has_enough(engine.num_prefills, engine.wait_s(request.service, now)) else level


def prefill_s(request: RequestView, engine: EngineView) -> float:
    return engine.prefill_s(request.service, request.num_tokens, request.cached.get(engine.id, 0))


def saved_level(request: RequestView, engine: EngineView, knobs: Knobs, now: float) -> Level:
    """Return how far constraint d is used up."""
    slack_s = engine.slack_s(now)
    return Level(engine.backlog_s(now) + prefill_s(request, engine), knobs.theta * slack_s if slack_s < inf else inf)


def memory_level(request: RequestView, engine: EngineView) -> Level:
    """Return how far constraint e is used up; and the prompt's blocks must be free now, and a place."""
    pool = engine.services[request.service]
    if not engine.has_place(request.service):
        return Level(pool.num_requests + 1, engine.max_running)
    if not pool.can_hold(request.num_tokens + 1):
        return Level(request.num_tokens + 1, pool.num_free_blocks * pool.block_size)
    steps = answer_of(request) - request.num_generated
    held = held_tokens(request.num_tokens, pool.block_size)
    return Level(highest_with(pool.demand.peaks, steps, held), pool.num_slots)


def broken(levels: Levels) -> str | None:
    """The first that does not hold."""
    return checked(levels)[0]


def checked(levels: Levels) -> tuple[str | None, list[tuple[str, Level]]]:
    """The first that does not hold, and all up to it."""
    seen: list[tuple[str, Level]] = []
    for name, level in levels:
        seen.append((name, level))
        if level.used > level.limit:
            return name, seen
    return None, seen


def decode_levels(request: RequestView, engine: EngineView, knobs: Knobs) -> Levels:
    """Return the levels of an engine that takes over what was prefilled elsewhere."""
    yield "b", context_level(request, engine, knobs, prefills=False)
    yield "e", memory_level(request, engine)


def all_levels(request: RequestView, engine: EngineView, knobs: Knobs, now: float) -> Levels:
    """Return the levels of an engine that does both phases."""
    yield "b", context_level(request, engine, knobs, prefills=True)
    if knobs.in_slack:
        yield "c", finish_level(request, engine, knobs, now)
    else:
        yield "c", prefill_level(request, engine, now)
        yield "d", saved_level(request, engine, knobs, now)
    yield "e", memory_level(request, engine)
