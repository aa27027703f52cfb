"""Tells gateways what an engine's decodes can still afford until their answers end, whoever joins them.

A decode of which ``slack_s`` is foreseen has ``slack_s - x * num_steps`` of it if each of its steps takes ``x`` seconds
longer than the next one, as newcomers make them. A gateway asks for the least of these over all decodes. Only those on
the lower envelope of the lines can be it, for whatever ``x``: few, however many decode.
"""

from collections.abc import Iterable

from engines.engine_request import EngineRequest
from engines.scheduling.backlog import Joining
from engines.scheduling.slack import foreseen_slack_s
from mesh.wire.status import MOST_FORESEEN, ForeseenSlack


def foreseen_slacks(
    decodes: Iterable[EngineRequest], joining: Iterable[Joining], now: float, step_s: float
) -> list[ForeseenSlack]:
    """Return those that may run out first, the least slack first; of decodes that are still expected to keep their
    promise, and of those that will join them. ``step_s``: of the next step of all.

    Prefills that end before the first token of one that joins do not take from its slack: it has as much more.
    """
    lines = [
        ForeseenSlack(foreseen_slack_s(one, one.least_left, now, step_s), one.least_left)
        for one in decodes
        if foreseen_slack_s(one, one.expected_left, now, step_s) >= 0
    ]
    for newcomer in joining:
        one, ends_s = newcomer.request, newcomer.ends_s
        num_steps = one.least_left
        slack_s = ends_s + (num_steps - 1) * (one.spec.slo_tpot_s - step_s)
        lines.append(ForeseenSlack(slack_s, num_steps))
    return lower_envelope(lines)


def lower_envelope(lines: Iterable[ForeseenSlack]) -> list[ForeseenSlack]:
    """Return the lines that are the lowest anywhere at ``x >= 0``, at most `MOST_FORESEEN`.

    The last one is lower than all that it stands for.
    """
    envelope: list[ForeseenSlack] = []
    for line in sorted(lines, key=lambda one: (one.slack_s, -one.num_steps)):
        if envelope and line.num_steps <= envelope[-1].num_steps:
            continue
        while len(envelope) > 1 and _meets_at(envelope[-2], line) <= _meets_at(envelope[-2], envelope[-1]):
            envelope.pop()
        envelope.append(line)
    if len(envelope) <= MOST_FORESEEN:
        return envelope
    kept, rest = envelope[: MOST_FORESEEN - 1], envelope[MOST_FORESEEN - 1 :]
    return [*kept, ForeseenSlack(rest[0].slack_s, rest[-1].num_steps)]


def _meets_at(one: ForeseenSlack, steeper: ForeseenSlack) -> float:
    return (steeper.slack_s - one.slack_s) / (steeper.num_steps - one.num_steps)
