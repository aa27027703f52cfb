"""Foresees whether an engine that takes a request still keeps all promises there (docs/concepts/foresight.md).

A decode has made a promise for its whole answer: after ``n`` more tokens, ``n T`` seconds may have passed. If its steps
take ``d`` seconds, prefills may hold it up by ``n (T - d)`` until then, and by what it has saved so far. Engines tell
that for their decodes (`mesh.wire.status.ForeseenSlack`). Here it is worked out what is left of it once a request has
joined: all prefills that are known there are taken off, and the time by which steps grow longer, for each step.

Nobody knows how long answers will be, nor how long steps will take. So ``n`` is a length that few answers are shorter
than, and predicted times are longer by the error that the engine's own predictions have had of late.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from engines.costs.linear import decode_step_s
from router.policies.parts.outlook import has_enough, stands_in_line
from router.view.engine_view import EngineView, RequestView

MOST_ERROR = 0.5  # an engine whose predictions are worse than that is not foreseen at all: it gets no larger margin


@dataclass(frozen=True, slots=True)
class Margins:
    """``watermark`` and ``headroom``: see the policy's parameters. ``error``: of predictions, at least."""

    watermark: float
    headroom: float
    error: float


class Errors(NamedTuple):
    """What predicted times are multiplied by."""

    prefill: float
    step: float


class Prospect(NamedTuple):
    """The prospect of a request on an engine. ``finish_s``: from now until its first token comes.

    ``after_s``: of prefills that are known there and will hold its next tokens up.
    """

    finish_s: float
    after_s: float


def errors_of(engine: EngineView, service: str, margins: Margins) -> Errors:
    pool, least = engine.services[service], margins.error
    prefill, step = pool.prefill_error or 0.0, pool.decode_error or 0.0
    return Errors(
        1 + (least if prefill <= least else min(MOST_ERROR, prefill)),
        1 + (least if step <= least else min(MOST_ERROR, step)),
    )


def first_token(engine: EngineView, request: RequestView, own_s: float, error: float, now: float) -> Prospect | None:
    """Return when its first token would come, computed in the order of deadlines. ``own_s``: its own prefill.

    None: it would be late, or make another one late, or the engine has enough to compute before it. The step that runs
    ends first, with its chunks of prompts. Where no prefill is, its own one is taken at its word: to refuse it would
    help nobody. Where the engine has a discipline, that says who goes first.
    """
    line_s = engine.line_s(request.service, now)
    if line_s is not None:
        finish_s = (line_s + own_s) * error
        is_late = now + (finish_s if line_s else own_s) > request.deadline
        return None if is_late or stands_in_line(engine, request, now) else Prospect(finish_s, 0.0)
    if not engine.prefills:
        is_late = now + engine.decode_step_s + own_s > request.deadline
        return None if is_late else Prospect(engine.decode_step_s + own_s * error, 0.0)
    place = (-request.priority, request.deadline)
    num_ahead, ahead_s, running_s, behind = 0, 0.0, 0.0, list[tuple[float, float]]()
    elapsed_s = now - engine.received_at
    done_s = min(now, engine.prefills_end_at) - engine.received_at
    for prefill in engine.prefills:
        left_s = max(0.0, prefill.left_s - done_s)
        done_s = max(0.0, done_s - prefill.left_s)
        first_s = min(left_s, max(0.0, prefill.running_s - elapsed_s))
        if now + left_s > prefill.due_at:
            running_s += first_s
            continue  # it is late, and will be given a later deadline
        if prefill[:2] > place:
            running_s += first_s
            behind.append((left_s - first_s, prefill.due_at - now))
        else:
            ahead_s += left_s
            num_ahead += 1
    if has_enough(num_ahead, ahead_s):
        return None
    finish_s = engine.decode_step_s + (running_s + ahead_s + own_s) * error
    if now + finish_s > request.deadline:
        return None
    ends_s = finish_s
    for left_s, due_s in behind:
        ends_s += left_s * error
        if ends_s > due_s >= ends_s - own_s * error:
            return None
    return Prospect(finish_s, sum([left_s for left_s, _ in behind]))


def joined_step_s(engine: EngineView, request: RequestView) -> float:
    """Predict a decode step once all that were sent there decode, and the request with them: half of each answer."""
    step_s = 0.0
    for name, pool in engine.services.items():
        demand = pool.demand
        number, context = demand.num_requests, demand.prompt_tokens + demand.answer_tokens // 2
        if name == request.service:
            number += 1
            context += request.num_tokens + max(0, request.answer_tokens - request.num_generated) // 2
        step_s += decode_step_s(pool.decode_cost, number, context)
    return step_s


def may_join(engine: EngineView, request: RequestView, step_s: float, margins: Margins) -> bool:
    """Return whether it has a place and memory for the request, and its steps leave room. ``step_s``: see
    `joined_step_s`.
    """
    pool = engine.services[request.service]
    if pool.watermark >= margins.watermark or not pool.can_hold(request.num_tokens + 1):
        return False
    if not engine.has_place(request.service):
        return False
    return not engine.num_requests or step_s <= margins.headroom * min(engine.tpot_slo_s, request.tpot_slo_s)


def spare_s(engine: EngineView, prefills_s: float, step_s: float, errors: Errors) -> float:
    """Return the least that any decode there will have to spare when its answer ends, infinite if nothing decodes.

    ``prefills_s``: of all prefills that hold them up, counted from the engine's status on. ``step_s``: of their steps.
    """
    held_up_s, step_s = prefills_s * errors.prefill, step_s * errors.step
    slower_s = max(0.0, step_s - engine.decode_step_s)
    least_s = min([slack_s - slower_s * num_steps for slack_s, num_steps in engine.foreseen], default=inf) - held_up_s
    for at, num_steps, promise_s in engine.joining:
        before_s = min(held_up_s, max(0.0, at - engine.received_at))  # of prefills that end before its first token
        least_s = min(least_s, num_steps * (promise_s - step_s) + before_s - held_up_s)
    return least_s


def own_spare_s(request: RequestView, after_s: float, step_s: float, errors: Errors) -> float:
    """Return what the request itself will have to spare. ``after_s``: of prefills that hold it up."""
    num_steps = max(1, request.least_tokens - request.num_generated)
    return num_steps * (request.tpot_slo_s - step_s * errors.step) - after_s * errors.prefill
