"""Computes how many engines a load needs from the costs of its steps (Aladdin, equations 4, 6 and 7).

An engine spends a share ``p`` of its time on prefills and the rest on decode steps, each of ``d`` seconds for one token
of every request in its batch. A token takes ``d / (1 - p)``. Take a steady state of ``N`` equal engines, and requests
of a service that arrive at a rate ``r`` and decode ``l`` tokens at a pace of ``T``. They make a batch of ``r l T / N``
(Little's law), and ``p = r t / N`` for prefills of ``t`` seconds. Bisection finds the least ``N`` that keeps three
limits. A token's ``d / (1 - p)`` is within the TPOT promise, prefills that wait for each other are within the TTFT
promise, and the KV of what runs at the pace that comes about fits. ``N`` is proportional to the rates, which is
equation 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

from engines.costs.linear import decode_step_s, prefill_s
from mesh.topology.schema import Slo
from mesh.wire.status import DecodeCost, PrefillCost
from router.placement.observe.traffic import Moments

KV_SHARE = 0.9  # of an engine's KV memory, on average
ROUNDS = 12
PRECISION = 1e-3  # relative, of the number of engines
LEAST, MOST = 1e-3, 65536.0


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """The load of one service, and what it costs on the engines in question. ``kv_tokens``: that one engine can hold of
    it. ``num_cached``: tokens of a mean prompt that are not computed. ``slo``: what requests are promised.
    """

    service: str
    rate: float  # requests a second
    num_input: Moments  # tokens
    num_output: Moments
    slo: Slo
    prefill: PrefillCost
    decode: DecodeCost
    kv_tokens: int
    num_cached: float = 0.0

    @property
    def prefill_s(self) -> float:
        """The seconds of a mean prompt's prefill."""
        num_tokens = round(self.num_input.mean)
        num_cached = min(round(self.num_cached), num_tokens - 1)  # the mean of requests that ended, and not of these
        return prefill_s(self.prefill, num_tokens - num_cached, num_cached)

    @property
    def decoded_tokens(self) -> float:
        """The decoded tokens of a mean answer; its first token is the prefill's."""
        return max(0.0, self.num_output.mean - 1)

    @property
    def context_tokens(self) -> float:
        """Mean context of a request in a batch. Long answers are met there more often, as they stay longer."""
        mean, deviation = self.num_output
        return self.num_input.mean + (mean + deviation * deviation / mean) / 2 if mean else self.num_input.mean


@dataclass(frozen=True, slots=True)
class Work:
    """Which shares of a service's prefills and decodes the engines in question do."""

    prefills: float = 1.0
    decodes: float = 1.0


class ImpossibleError(Exception):
    """No number of engines keeps a promise; the text says which."""


def engines_needed(demands: Sequence[tuple[ServiceLoad, Work]], margin: float = 1.0) -> float:
    """The least number, not rounded, that keeps all promises at ``margin`` times their length. 0 without demand.

    Raise `ImpossibleError` if a promise is out of reach of an engine that has nothing else to do.
    """
    asked = [(demand, work) for demand, work in demands if demand.rate > 0 and (work.prefills or work.decodes)]
    if not asked:
        return 0.0
    for demand, work in asked:
        _check_possible(demand, work, margin)
    low, high = 0.0, 1.0
    while not _is_enough(asked, margin, high):
        low, high = high, 2 * high
        if high > MOST:
            raise ImpossibleError(f"more than {MOST:g} engines would be needed")
    while high - low > PRECISION * max(high, LEAST):  # nothing may be needed: no answer has been seen yet
        middle = (low + high) / 2
        low, high = (low, middle) if _is_enough(asked, margin, middle) else (middle, high)
    return high


def _check_possible(demand: ServiceLoad, work: Work, margin: float) -> None:
    ttft_s, tpot_s = margin * demand.slo.ttft_s, margin * demand.slo.tpot_s
    if work.prefills and demand.prefill_s > ttft_s:
        takes, length = _ms(demand.prefill_s), round(demand.num_input.mean)
        raise ImpossibleError(
            f"{demand.service}: a prefill of {length} tokens takes {takes}, TTFT is to be {_ms(ttft_s)}"
        )
    step_s = decode_step_s(demand.decode, 1, round(demand.context_tokens))
    if work.decodes and demand.decoded_tokens and step_s > tpot_s:
        raise ImpossibleError(
            f"{demand.service}: a decode step of one request takes {_ms(step_s)}, TPOT is to be {_ms(tpot_s)}"
        )
    if demand.num_input.mean + demand.num_output.mean > demand.kv_tokens:
        total = round(demand.num_input.mean + demand.num_output.mean)
        raise ImpossibleError(f"{demand.service}: a request has {total} tokens, KV memory holds {demand.kv_tokens}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _is_enough(asked: Sequence[tuple[ServiceLoad, Work]], margin: float, num_engines: float) -> bool:
    decodes = [(demand, work.decodes * demand.rate / num_engines) for demand, work in asked]
    prefills = [(demand, work.prefills * demand.rate / num_engines) for demand, work in asked]
    tpot_s = min(
        (margin * demand.slo.tpot_s for demand, rate in decodes if rate and demand.decoded_tokens), default=inf
    )
    free = 1 - _round_s(decodes, tpot_s) / tpot_s  # of an engine's time, for prefills, where decodes are just in time
    in_use = sum(rate * demand.prefill_s for demand, rate in prefills)
    if in_use >= free:
        return False
    if in_use and not _prefills_in_time(prefills, free, margin):
        return False
    pace_s = tpot_s
    for _ in range(ROUNDS):  # towards the pace of the steady state, from above
        if _kv_share(decodes, pace_s) <= KV_SHARE:
            return True
        pace_s = _round_s(decodes, pace_s) / (1 - in_use)
    return False


def _round_s(decodes: Sequence[tuple[ServiceLoad, float]], pace_s: float) -> float:
    """A step of each service, with the batches that come about at that pace."""
    if pace_s == inf:
        return 0.0
    return sum(_step_s(demand, rate * demand.decoded_tokens * pace_s) for demand, rate in decodes)


def _kv_share(decodes: Sequence[tuple[ServiceLoad, float]], pace_s: float) -> float:
    """Of an engine's KV memory, in use."""
    if pace_s == inf:
        return 0.0
    batches = [(demand, rate * demand.decoded_tokens * pace_s) for demand, rate in decodes]
    return sum(batch * demand.context_tokens / demand.kv_tokens for demand, batch in batches)


def _step_s(demand: ServiceLoad, batch: float) -> float:
    """Of a batch that holds so many requests on average. One with less than one does not decode all of the time."""
    if not batch:
        return 0.0
    whole = max(batch, 1.0)
    low = int(whole)
    low_s, high_s = (decode_step_s(demand.decode, size, round(size * demand.context_tokens)) for size in (low, low + 1))
    return (low_s + (whole - low) * (high_s - low_s)) * min(batch, 1.0)


def _prefills_in_time(prefills: Sequence[tuple[ServiceLoad, float]], free: float, margin: float) -> bool:
    """Each waits for those before it: P(wait > w) = u exp(-2 (1 - u) w / t), of a queue with ``u`` of its time in use.

    ``prefills`` with the rate at which they come to one engine.
    """
    in_use = sum(rate * demand.prefill_s for demand, rate in prefills) / free
    mean_s = in_use / sum(rate for _, rate in prefills)
    for demand, rate in prefills:
        if not rate:
            continue
        is_late = in_use / (1 - demand.slo.attainment) if demand.slo.attainment < 1 else inf
        waits_s = max(0.0, log(is_late)) * mean_s / (2 * (1 - in_use))
        if demand.prefill_s / free + waits_s > margin * demand.slo.ttft_s:
            return False
    return True
