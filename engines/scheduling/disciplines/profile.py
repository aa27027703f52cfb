"""Learns what each service's requests cost: mean and standard deviation of their execution times.

The execution time of a request is what its tokens take alone, by the cost model as it is when the request ends: its
prompt, and one decode step for each further token. Waiting and the company of others do not count.

It counts what a request ran *here*. One that was handed over after its prefill cost a prefill engine that prefill, and
costs a decode engine its decode steps; one that migrated counts on both engines, each with its part. So on an engine
of one phase, mean and deviation are those of that phase, and disciplines minimise the latency here, normalised by the
execution time here. That is the paper's rule with the phase for the request. It ranks services as the whole requests
would be ranked as far as their phases cost in the same proportion; no engine knows what the other phase will cost.
"""

from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple, Protocol

from engines.costs.linear import decode_step_s, prefill_s, requests_s, serving_s
from engines.costs.step_cost import StepCost
from engines.engine_request import EngineRequest
from mesh.wire.status import DecodeCost

WINDOW = 256  # requests; older ones are forgotten exponentially
PRIOR_PROMPT, PRIOR_ANSWER = (
    512,
    256,
)  # tokens of a request that a service is thought to have before any has ended
PRIOR_WEIGHT = 8  # requests that it counts for: the first ones to end are short ones, whatever the others are


Lengths = tuple[int, int]  # tokens of a prompt and an answer
ORDINARY: Lengths = PRIOR_PROMPT, PRIOR_ANSWER


class Profile(Protocol):
    """Execution times of a service."""

    @property
    def mean_s(self) -> float: ...
    @property
    def budget_s(self) -> float: ...


class ProfileOf(Protocol):
    """The profiles by service."""

    def __getitem__(self, service: str, /) -> Profile: ...


class Costs(Protocol):
    """Predicts what a service's steps cost."""

    def step_cost(self) -> StepCost:
        """The cost of steps, as predictions are now."""


class ExecutionTimes:
    """Execution times of one service. Before any request has ended they are those of an ordinary one, give or take as
    much.

    That prior ranks services by their usual lengths, if those are known, and by the size of their models. Where it is
    wrong only the order suffers, and mostly not for long: a request that outlasts its budget sinks, one that waits too
    long rises.
    """

    def __init__(self, prior_s: float) -> None:
        self.mean_s = self.std_s = prior_s
        self._prior_s = prior_s
        self._prior_weight = 1.0  # what is left of the prior in the mean
        self._num_ended = 0

    def __repr__(self) -> str:
        return f"<ExecutionTimes {self.mean_s:.3f} s +- {self.std_s:.3f} s of {self._num_ended} requests>"

    @property
    def budget_s(self) -> float:
        """Return the first budget of a request. ``Q = Lhat + Std`` (SeaLLM, section 4.2)."""
        return self.mean_s + self.std_s

    def add(self, seconds: float) -> None:
        """A request has ended."""
        self._num_ended += 1
        weight = 1 / min(PRIOR_WEIGHT + self._num_ended, WINDOW)
        change = seconds - self.mean_s
        self.mean_s += weight * change
        self.std_s = sqrt((1 - weight) * (self.std_s * self.std_s + weight * change * change))
        self._prior_weight *= 1 - weight

    def expect(self, prior_s: float) -> None:
        """Put another prior in the place of the one before, as far as it still counts."""
        square = self.std_s * self.std_s + self.mean_s * self.mean_s
        square += self._prior_weight * 2 * (prior_s * prior_s - self._prior_s * self._prior_s)
        self.mean_s += self._prior_weight * (prior_s - self._prior_s)
        self.std_s = sqrt(max(0.0, square - self.mean_s * self.mean_s))
        self._prior_s = prior_s


class _Coming(NamedTuple):
    """How a request came here."""

    num_tokens: int
    num_computed: int


class Profiles:
    """The profiles of all services of an engine. ``costs``: of those that are here now; ``usual`` lengths: as far as
    known, now.
    """

    def __init__(self, costs: Mapping[str, Costs], usual: Mapping[str, Lengths] | None = None) -> None:
        self._costs = costs
        self._usual = usual or {}
        self._times: dict[str, ExecutionTimes] = {}
        self._expected: dict[str, Lengths] = {}
        self._here: dict[EngineRequest, _Coming] = {}

    def __getitem__(self, service: str, /) -> ExecutionTimes:
        times, lengths = self._times.get(service), self._usual.get(service, ORDINARY)
        if times is None:
            times = self._times[service] = ExecutionTimes(_prior_s(self._costs[service].step_cost(), *lengths))
            self._expected[service] = lengths
        elif self._expected[service] != lengths and service in self._costs:
            times.expect(_prior_s(self._costs[service].step_cost(), *lengths))
            self._expected[service] = lengths
        return times

    def came(self, request: EngineRequest) -> None:
        self._here[request] = _Coming(len(request.tokens), request.num_computed)

    def ended(self, request: EngineRequest) -> None:
        """Learn from a request that ended. One that never ran tells nothing."""
        coming, service = self._here.pop(request, None), request.spec.service
        execution_s = 0.0 if coming is None else _execution_s(self._costs[service].step_cost(), request, coming)
        if execution_s > 0:
            self[service].add(execution_s)


def _execution_s(cost: StepCost, request: EngineRequest, coming: _Coming) -> float:
    """Alone, of what a request ran since it came. The first token of an answer comes with the prompt's last."""
    num_sampled = len(request.tokens) - coming.num_tokens
    if coming.num_tokens - coming.num_computed == 1 and coming.num_tokens > request.num_prompt:
        return decodes_s(cost.decode, num_sampled, coming.num_tokens)
    num_before = max(coming.num_computed, request.num_cached)
    if not num_sampled:
        return prefill_s(cost.prefill, request.num_computed - num_before, num_before)
    prompt_s = prefill_s(cost.prefill, coming.num_tokens - num_before, num_before)
    return prompt_s + decodes_s(cost.decode, num_sampled - 1, coming.num_tokens + 1)


def decodes_s(cost: DecodeCost, num_steps: int, context: int) -> float:
    """Seconds of decode steps of one request alone, the first of them with ``context`` tokens."""
    contexts = num_steps * context + num_steps * (num_steps - 1) / 2
    return num_steps * requests_s(cost, 1) + contexts * (cost.per_context_token_s + cost.per_mean_context_token_s)


def _prior_s(cost: StepCost, num_prompt: int, num_answer: int) -> float:
    return serving_s(cost.prefill, cost.decode, 1, num_prompt, num_answer - 1)


def quickest_step_s(costs: Mapping[str, Costs]) -> float:
    """Return the seconds of a decode alone, of the fastest service."""
    return min(decode_step_s(cost.step_cost().decode, 1, PRIOR_PROMPT) for cost in costs.values())
