"""Predicts when a prefill would be done on an engine whose decodes keep their promises (docs/concepts/elastic.md)."""

from math import inf

import msgspec

from mesh.wire.control import Role
from router.view.engine_view import EngineView, RequestView

MOST_AHEAD, ENOUGH_S = 1, 0.1
TOKENS_BEHIND = 2  # of a decode that joins others: an iteration with a prompt runs meanwhile


class Outlook(msgspec.Struct, frozen=True):
    """The outlook of one request on one engine. ``finish_s``: from now until its first token.

    ``num_ahead``: prefills there that are due earlier. ``makes_late``: another one would break its promise, or it would
    stand in the line of a discipline.
    """

    finish_s: float
    num_ahead: int
    makes_late: bool


def has_enough(num_ahead: int, ahead_s: float) -> bool:
    """Return whether an engine that has so many prompts to compute before another one need not be sent that one yet.

    What waits in a gateway is served in the order by which most are in time. What an engine has accepted it computes,
    and long prompts, which may wait for long, would leave no time there for short ones that may not.
    """
    return num_ahead > MOST_AHEAD and ahead_s > ENOUGH_S


def stands_in_line(engine: EngineView, request: RequestView, now: float) -> bool:
    """Return whether a request would wait there for others' turns, by the engine's discipline. It had better wait in
    the gateway: there nobody who comes later passes it, and another engine may have it. One that is late, and is
    wanted all the same, goes into any line: there it is not passed for ever.
    """
    return now <= request.deadline and (engine.line_s(request.service, now) or 0.0) > ENOUGH_S


def own_work_s(engine: EngineView, request: RequestView, cached: int | None = None) -> float:
    """Seconds of a request's prefill, less what the engine likely has of it (``cached`` tokens, if given)."""
    num_cached = request.cached.get(engine.id, 0) if cached is None else cached
    return engine.prefill_s(request.service, request.num_tokens, num_cached)


def work_ahead_s(engine: EngineView, place: tuple[int, float], now: float) -> float:
    """Seconds of prefills that come before one at ``place``, (-priority, deadline), at the full speed of the engine."""
    work_s = 0.0
    for prefill in engine.prefills:
        if prefill[:2] > place:
            break
        if now + prefill.left_s <= prefill.due_at:
            work_s += prefill.left_s
    return max(0.0, work_s - _done_s(engine, now)) if work_s else 0.0


def _done_s(engine: EngineView, now: float) -> float:
    """What it has computed since it told of its prefills: no more than those."""
    return min(now, engine.prefills_end_at) - engine.received_at


def alone_s(engine: EngineView, work_s: float, now: float) -> float:
    """F(W) where no other prefill is: when so many seconds of one would be done."""
    slack_s = max(0.0, engine.slack_s(now))
    if work_s <= slack_s:
        return engine.step_wait_s + work_s
    speed = prefill_speed(engine)
    return engine.step_wait_s + slack_s + ((work_s - slack_s) / speed if speed > 0 else inf)


def look_ahead(engine: EngineView, request: RequestView, now: float) -> Outlook:
    """The engine computes prefills by deadline, whichever has begun, but nobody passes the step that runs. Those late
    by now will be given a later deadline.

    Where the engine has a discipline, that says who goes before the request, and no slack is waited for: all that
    decodes there stands still for its prompt.
    """
    line_s = engine.line_s(request.service, now)
    if line_s is not None:
        own_s = own_work_s(engine, request)
        makes_late = stands_in_line(engine, request, now) or engine.slack_s(now) < engine.backlog_s(now) + own_s
        return Outlook(line_s + own_s, engine.num_prefills if line_s else 0, makes_late)
    if not engine.prefills and not engine.coming:
        return Outlook(alone_s(engine, own_work_s(engine, request), now), 0, makes_late=False)
    course = _Course(engine, request, now)
    place = (-request.priority, request.deadline)
    num_ahead, running_s = 0, 0.0
    done_s, elapsed_s = _done_s(engine, now), now - engine.received_at
    behind = []
    for prefill in engine.prefills:
        left_s = max(0.0, prefill.left_s - done_s)
        done_s = max(0.0, done_s - prefill.left_s)
        first_s = min(left_s, max(0.0, prefill.running_s - elapsed_s))
        if now + left_s > prefill.due_at:
            running_s += first_s
            continue
        if prefill[:2] > place:
            running_s += first_s
            behind.append((left_s - first_s, prefill.due_at - now))
            continue
        course.compute(left_s)
        course.join()
        num_ahead += 1
    course.compute(running_s)
    before_s = course.elapsed_s
    course.compute(own_work_s(engine, request))
    finish_s = course.elapsed_s
    course.join()
    return Outlook(finish_s, num_ahead, bool(behind) and course.makes_late(behind, finish_s - before_s))


class _Course:
    """Of an engine, from now on: saved slack is spent first, then prefills take what decode steps leave. What those who
    join owe is earned before that.
    """

    __slots__ = ("_coming", "_joined_s", "_keeps", "_slack_s", "_speed", "_tpot_slo_s", "elapsed_s")

    def __init__(self, engine: EngineView, request: RequestView, now: float) -> None:
        self.elapsed_s = engine.step_wait_s
        self._slack_s = max(0.0, engine.slack_s(now))
        self._speed = prefill_speed(engine)
        self._keeps = engine.role is not Role.PREFILL
        coming = engine.coming if self._keeps else ()
        self._coming = sorted([(one.at - now, one.tpot_slo_s) for one in coming], reverse=True)
        joins = self._keeps and bool(engine.prefills or coming)
        self._joined_s = engine.joined_step_s(request.service, request.num_tokens) if joins else 0.0
        self._tpot_slo_s = request.tpot_slo_s

    def compute(self, work_s: float) -> None:
        """F(W): W within the slack, W / speed beyond it. Decodes that are handed over meanwhile join in their turn."""
        if work_s <= 0:
            return
        while self._coming and self.elapsed_s + self._takes_s(work_s) > self._coming[-1][0]:
            at_s, tpot_slo_s = self._coming.pop()
            work_s -= self._compute_for(max(0.0, at_s - self.elapsed_s))
            self._slow_down(tpot_slo_s, TOKENS_BEHIND)
        self.elapsed_s += self._takes_s(work_s)
        self._slack_s = max(0.0, self._slack_s - work_s)

    def _takes_s(self, work_s: float) -> float:
        beyond_s = work_s - self._slack_s
        if beyond_s <= 0:
            return work_s
        return self._slack_s + (beyond_s / self._speed if self._speed > 0 else inf)

    def _compute_for(self, seconds: float) -> float:
        """Return the seconds of prefills that are computed in so many."""
        self.elapsed_s += seconds
        if seconds <= self._slack_s:
            self._slack_s -= seconds
            return seconds
        done_s = self._slack_s + (seconds - self._slack_s) * self._speed
        self._slack_s = 0.0 if done_s >= 0 else self._slack_s + seconds * self._speed / (1.0 - self._speed)
        return max(0.0, done_s)

    def join(self) -> None:
        """What was computed decodes from now on, and has saved no more than its first step leaves."""
        if self._keeps:
            self._slow_down(self._tpot_slo_s, 0)

    def _slow_down(self, tpot_slo_s: float, tokens_behind: int) -> None:
        """One more decodes that was promised so much a token, and owes so many of them."""
        if tpot_slo_s == inf:
            return
        left_s = max(0.0, tpot_slo_s - self._joined_s)
        self._slack_s = min(self._slack_s, left_s - tokens_behind * tpot_slo_s)
        self._speed = min(self._speed, left_s / tpot_slo_s)

    def makes_late(self, behind: list[tuple[float, float]], mine_s: float) -> bool:
        """Whether one of those behind (seconds left, seconds until due) would have been in time without mine."""
        for left_s, due_s in behind:
            self.compute(left_s)
            self.join()
            if self.elapsed_s > due_s >= self.elapsed_s - mine_s:
                return True
        return False


def prefill_speed(engine: EngineView) -> float:
    """Seconds of prefill that an engine computes each second while its decodes keep their promises: 1 - d / T."""
    if engine.tpot_slo_s == inf:
        return 1.0
    return max(0.0, 1.0 - engine.decode_step_s / engine.tpot_slo_s)
