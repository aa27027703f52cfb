"""Decides which candidates are simulated next, on how many requests: successive halving with two objectives.

All candidates run on short samples, the better quarter on samples four times as long, and so on (Jamieson and
Talwalkar, 2016). Better is what no other candidate beats in price and in use of the promise, then what only those beat,
layer by layer (Schmucker et al., 2021). A round drops what its samples show to break the promise. It puts aside what is
not better, and what is dearer than a candidate that keeps the promise with room; the first round goes from cheap to
dear and ends with such a one. The last round is judged by a test; where it leaves something open that would be cheaper,
more samples are drawn. If nothing keeps the promise in the end, short samples flattered: the search begins anew with
what was put aside, on longer samples.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, log
from typing import Final

from simulation.search.evidence import Keeping, SampleResult, is_better, judge, samples_for

FACTOR: Final = 4  # times longer samples, for a quarter of the candidates
FEW: Final = 3  # candidates that a round leaves, whatever their order
ROOM: Final = 0.75  # of the promise: who uses no more in a short sample is taken to keep it in a long one
FAR: Final = 10.0  # times the promise, beyond which it does not matter how much
WAVE: Final = 32  # candidates of the first round that are simulated before anybody looks, at least
LOOKS: Final = 3  # at the candidates of the last round, with twice as many samples each time


@dataclass(frozen=True, slots=True)
class SearchRound:
    """Simulations that need nothing of each other: each candidate on each sample."""

    candidates: Sequence[int]
    num_requests: int  # of a sample
    seeds: Sequence[int]


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How much is simulated. ``num_requests``: of one candidate in the last round, in all of its samples.

    ``least_requests``: of a sample; fewer would show an empty mesh fill up, and no more.
    """

    goal: float
    confidence: float
    num_requests: int
    least_requests: int

    @property
    def risk(self) -> float:
        """The chance of a mistake about one candidate at one look: all looks together keep the confidence."""
        return (1 - self.confidence) / LOOKS

    @property
    def num_samples(self) -> int:
        return samples_for(self.risk)

    def lengths(self, num_candidates: int) -> list[int]:
        """Return the requests of a sample in each round, the last one's last."""
        lengths = [max(1, self.num_requests // self.num_samples)]
        while num_candidates > FEW and lengths[0] // FACTOR >= self.least_requests:
            lengths.insert(0, lengths[0] // FACTOR)
            num_candidates = ceil(num_candidates / FACTOR)
        return lengths


@dataclass(slots=True)
class TriedCandidate:
    """What became of one candidate so far, on samples of one length."""

    num_requests: int = 0  # of a sample
    results: list[SampleResult] = field(default_factory=list)

    @property
    def attainments(self) -> list[float]:
        return [result.attainment for result in self.results]

    @property
    def attainment(self) -> float:
        return sum(self.attainments) / len(self.results)

    @property
    def use(self) -> float:
        return sum(min(result.use, FAR) for result in self.results) / len(self.results)


class Halving:
    """Asks for rounds, and hears of their results. ``prices`` are those of the candidates, by index."""

    def __init__(self, prices: Sequence[float], effort: SearchEffort) -> None:
        self.tried = [TriedCandidate() for _ in prices]
        self.keeping: dict[int, Keeping] = {}  # of the candidates of the last round
        self.cpu_s = 0.0
        self.num_simulated = 0  # requests
        self._prices = prices
        self._effort = effort
        self._lengths = effort.lengths(len(prices))
        self._begin(range(len(prices)))

    def _begin(self, candidates: Iterable[int]) -> None:
        """Start with the first round. If it is the last one, too, its later waves are for another beginning."""
        by_price = sorted(candidates, key=lambda one: self._prices[one])
        self._waves = list(_waves(by_price, self._prices))
        self._aside: list[int] = []
        self._left = by_price
        if len(self._lengths) == 1:
            self._left, *later = self._waves
            self._aside = [one for wave in later for one in wave]
        self._asked: list[int] = []  # in the last round
        self._length = self._looks = 0

    def __repr__(self) -> str:
        return (
            f"<Halving {len(self._left)} left, round {self._length + 1} of {len(self._lengths)}, {self._looks} looks>"
        )

    @property
    def num_requests(self) -> int:
        """Requests of a sample of the last round."""
        return self._lengths[-1]

    @property
    def best(self) -> int | None:
        """The cheapest that keeps the promise; of several, the one that keeps most. None: there is none yet."""
        keeps = [one for one, keeping in self.keeping.items() if keeping is Keeping.KEEPS]
        return min(keeps, key=lambda one: (self._prices[one], -self.tried[one].attainment, one), default=None)

    @property
    def equals(self) -> list[int]:
        """The others of the best one's price that may be as good: the same samples do not tell them apart."""
        best = self.best
        if best is None:
            return []
        own = self.tried[best].attainments
        return [
            one
            for one in self.keeping
            if one != best
            and self._prices[one] == self._prices[best]
            and not is_better(own, self.tried[one].attainments, 1 - self._effort.confidence)
        ]

    def next_round(self) -> SearchRound | None:
        """Return what to simulate now; None: the search is over."""
        count = self._effort.num_samples
        if self._looks == 0:
            wave = self._waves[0] if self._waves else self._left
            return SearchRound(tuple(wave), self._lengths[self._length], range(count))
        undecided = self._undecided()
        if self._looks == LOOKS or not undecided:
            if self.best is not None or not self._aside:
                return None
            self._lengths = self._lengths[1:] or self._lengths
            self._begin(self._aside)
            return self.next_round()
        drawn = count << (self._looks - 1)
        return SearchRound(tuple(undecided), self.num_requests, range(drawn, 2 * drawn))

    def tell(self, asked: SearchRound, results: Mapping[int, Sequence[SampleResult]]) -> None:
        """Take the results of a round: for each candidate one for each seed, in their order."""
        for one in asked.candidates:
            tried = self.tried[one]
            tried.results = [*(tried.results if self._looks else ()), *results[one]]
            tried.num_requests = asked.num_requests
            self.cpu_s += sum(result.cpu_s for result in results[one])
            self.num_simulated += asked.num_requests * len(asked.seeds)
        if self._length + 1 < len(self._lengths):
            self._end_wave()
            return
        self._looks += 1
        self._asked = list(asked.candidates)
        for one in asked.candidates:
            self.keeping[one] = self._judge(one)

    def _end_wave(self) -> None:
        """Go on to the next one of the first round, unless a candidate with room makes dearer ones needless."""
        del self._waves[:1]
        if self._waves and self._cheapest_with_room(self._left) == inf:
            return
        self._aside += [one for wave in self._waves for one in wave]
        self._left = [one for one in self._left if one not in self._aside]
        self._waves = []
        self._halve()
        self._length += 1

    def _undecided(self) -> list[int]:
        """Open ones that would be cheaper than the best, in the order of prices."""
        price = inf if self.best is None else self._prices[self.best]
        return [one for one in self._asked if self.keeping[one] is Keeping.OPEN and self._prices[one] < price]

    def _judge(self, one: int) -> Keeping:
        return judge(self.tried[one].results, self._effort.goal, self._effort.risk)

    def _cheapest_with_room(self, among: Iterable[int]) -> float:
        """Return its price; of none, infinity."""
        tried = ((one, self.tried[one].results) for one in among)
        with_room = [one for one, results in tried if results and all(result.use <= ROOM for result in results)]
        return min((self._prices[one] for one in with_room), default=inf)

    def _halve(self) -> None:
        """Keep a quarter at most."""
        wanted = max(FEW, ceil(len(self._left) / FACTOR))
        plausible = [one for one in self._left if self._judge(one) is not Keeping.BREAKS] or self._left
        dearest = self._cheapest_with_room(plausible)
        points = {
            one: (self._prices[one], max(self.tried[one].use, ROOM))
            for one in plausible
            if self._prices[one] <= dearest
        }
        kept: list[int] = []
        for layer in layers(points):
            kept += sorted(layer, key=lambda one: abs(log(points[one][1])))[: wanted - len(kept)]
        self._aside += [one for one in plausible if one not in kept]
        self._left = sorted(kept)


def _waves(by_price: Sequence[int], prices: Sequence[float]) -> Iterable[list[int]]:
    """Cut them into waves. Those of one price are in one."""
    wave: list[int] = []
    for one in by_price:
        if len(wave) >= WAVE and prices[one] > prices[wave[-1]]:
            yield wave
            wave = []
        wave.append(one)
    yield wave


def layers(points: Mapping[int, tuple[float, float]]) -> Iterable[list[int]]:
    """Yield those that no other beats (as good in both numbers, better in one: less is better), then the next ones."""
    left = dict(points)
    while left:
        layer = [one for one, own in left.items() if not any(_beats(other, own) for other in left.values())]
        yield layer
        for one in layer:
            del left[one]


def _beats(other: tuple[float, float], own: tuple[float, float]) -> bool:
    return other != own and other[0] <= own[0] and other[1] <= own[1]
