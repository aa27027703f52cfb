"""Advises how many devices an engine should have and how many engines a load takes (Aladdin, section 4.1).

Equation 6: the tokens that an engine of N devices generates each second and device are the smaller of

    M / (N m_r t(B))      its memory is full: B = M / m_r requests decode at once, and their step takes t(B)
    B / (N T_dec)         its promise is used up: B requests decode at once, and their step takes T_dec

and the best N is the one with most. m_r is what a request holds on average over the steps of its life. The prefill is
left out, as decodes dominate. What follows here counts it, for rates, TTFT and TPOT of an engine that does both:

    TPOT = t(B) + B p / l_out        B decodes wait for the prefills of p seconds of those that come meanwhile
    rate = B / (l_out TPOT)          Little's law

and TTFT is half a step, the prefill, and the wait for the prefills before (Pollaczek and Khinchine).
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

import msgspec

from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from engines.costs.scaling import BYTES_16_BIT, ModelShape

MOST_RUNNING = 4096
STEP, NUM_STEPS = 0.8, 24  # of running requests, in a trade-off


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of requests, in tokens. ``held``: what one holds on average over its steps; longer answers count for
    longer.
    """

    num_input: float
    num_output: float
    held: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> "Lengths":
        """(prompt, answer) of each."""
        known = list(pairs)
        inputs, outputs = (sum(pair[index] for pair in known) for index in (0, 1))
        held = sum(answer * (prompt + answer / 2) for prompt, answer in known)
        return cls(inputs / len(known), outputs / len(known), held / outputs)


@dataclass(frozen=True, slots=True)
class LatencyPromise:
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice about one configuration. ``rate``: requests a second and engine; ``limited_by``: memory or TPOT.

    ``broken``: which term of the promise no load could keep, in words; then the rest is 0.
    """

    profile: EngineProfile
    kv_tokens: int
    broken: str | None = None
    num_running: int = 0
    limited_by: str = ""
    tokens_per_device: float = 0.0  # a second: equation 6
    rate: float = 0.0
    ttft_s: float = 0.0
    tpot_s: float = 0.0

    @property
    def rate_per_device(self) -> float:
        return self.rate / self.profile.num_devices


def advise(profile: EngineProfile, lengths: Lengths, promise: LatencyPromise) -> Advice:
    """Return what an engine of that profile can do."""
    kv_tokens = profile.kv_memory_bytes // profile.kv_bytes_per_token
    held = _held(profile, lengths)
    if broken := _broken(profile, lengths, promise, kv_tokens):
        return Advice(profile, kv_tokens, broken)
    by_memory = min(int(kv_tokens / held), MOST_RUNNING)
    by_promise = _most(lambda count: _step_s(profile, count, held) <= promise.tpot_s, MOST_RUNNING)
    memory_rate = by_memory / (profile.num_devices * _step_s(profile, by_memory, held))
    promise_rate = by_promise / (profile.num_devices * promise.tpot_s)
    own_s = prefill_s(profile.prefill, round(lengths.num_input))

    def tpot_s(count: int) -> float:
        return _step_s(profile, count, held) + count * own_s / lengths.num_output

    num_running = max(1, _most(lambda count: tpot_s(count) <= promise.tpot_s, by_memory))
    rate = num_running / (lengths.num_output * tpot_s(num_running))
    busy = rate * own_s
    wait_s = busy * own_s / (2 * (1 - busy)) if busy < 1 else inf
    return Advice(
        profile,
        kv_tokens,
        None,
        num_running,
        "memory" if memory_rate < promise_rate else "TPOT",
        min(memory_rate, promise_rate),
        rate,
        _step_s(profile, num_running, held) / 2 + own_s + wait_s,
        tpot_s(num_running),
    )


def trade_off(profile: EngineProfile, lengths: Lengths) -> list[tuple[float, float]]:
    """Return what an engine costs that runs more and more requests at once, as far as its memory goes: the devices that
    a request a second takes, and TPOT in seconds.
    """
    held, own_s = _held(profile, lengths), prefill_s(profile.prefill, round(lengths.num_input))
    most = min(int(profile.kv_memory_bytes // profile.kv_bytes_per_token / held), MOST_RUNNING)
    points = []
    for count in sorted({max(1, round(most * STEP**power)) for power in range(NUM_STEPS)} if most else ()):
        tpot_s = _step_s(profile, count, held) + count * own_s / lengths.num_output
        points.append((profile.num_devices * lengths.num_output * tpot_s / count, tpot_s))
    return points


def with_link(profile: EngineProfile, shape: ModelShape, bytes_per_s: float, hop_s: float) -> EngineProfile:
    """The same engine where devices exchange activations over another link than that of the profile, on top of it.

    Each layer has two all-reduces of a row of ``hidden_size`` for each token: in a ring 2 (N - 1) hops, and each device
    sends 2 (N - 1) / N of the rows.
    """
    devices, exchanges = profile.num_devices, 2 * shape.num_layers
    fixed_s = exchanges * 2 * (devices - 1) * hop_s
    row_s = exchanges * 2 * (devices - 1) / devices * shape.hidden_size * BYTES_16_BIT / bytes_per_s
    prefill, decode = profile.prefill, profile.decode
    return dataclasses.replace(
        profile,
        prefill=msgspec.structs.replace(
            prefill,
            fixed_s=prefill.fixed_s + fixed_s,
            per_token_s=prefill.per_token_s + row_s,
            table=tuple((size, time_s + fixed_s + size * row_s) for size, time_s in prefill.table),
        ),
        decode=msgspec.structs.replace(
            decode,
            fixed_s=decode.fixed_s + fixed_s,
            per_request_s=decode.per_request_s + row_s,
            table=tuple((size, time_s + fixed_s + size * row_s) for size, time_s in decode.table),
        ),
    )


def best(found: Mapping[str, Advice]) -> str | None:
    """The name of the configuration with most tokens a device; of equals, the smaller one. None if none can do it."""
    able = {name: advice for name, advice in found.items() if advice.broken is None}
    return max(able, key=lambda name: (able[name].tokens_per_device, -able[name].profile.num_devices), default=None)


def _broken(profile: EngineProfile, lengths: Lengths, promise: LatencyPromise, kv_tokens: int) -> str | None:
    longest = lengths.num_input + lengths.num_output
    if kv_tokens < longest:
        left = "no memory" if kv_tokens <= 0 else f"memory for {kv_tokens} tokens"
        return f"memory: weights leave {left}, and a request has {longest:.0f}"
    own_s = prefill_s(profile.prefill, round(lengths.num_input))
    if own_s > promise.ttft_s:
        return f"TTFT: the prefill of {lengths.num_input:.0f} tokens alone takes {own_s * 1e3:.0f} ms"
    alone_s = _step_s(profile, 1, lengths.held) + own_s / lengths.num_output
    if alone_s > promise.tpot_s:
        return f"TPOT: a single request takes {alone_s * 1e3:.1f} ms a token"
    return None


def _held(profile: EngineProfile, lengths: Lengths) -> float:
    """Tokens' worth of memory that a request holds on average."""
    return lengths.held + profile.kv_bytes_per_request / profile.kv_bytes_per_token


def _step_s(profile: EngineProfile, num_requests: int, held: float) -> float:
    return decode_step_s(profile.decode, num_requests, round(num_requests * held))


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to ``limit`` for which it holds, as it does for all below it; 0: for none."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
