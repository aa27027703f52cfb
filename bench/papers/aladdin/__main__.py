"""How many engines keep the promise at a rate of requests: packing beside what does not pack (Aladdin, figures 11, 12).

    python -m bench.papers.aladdin [--device a100] [--models llama2-7b ...] [--rates 5 10] [--percent 99 100]
        [--contenders NAME ...] [--thetas 0.9 0.75] [--seeds 2]

SLOs are Aladdin's (table 2): a promise counts as kept if so many percent of the requests get both their first token and
their tokens in time. Requests come at random (Poisson), with ShareGPT's lengths as Llumnix's table has them, and those
of the first ``--warm-up`` seconds are served, but not counted. Of each contender the fewest engines are searched for
that keep the promise, by growing steps and halving. ``default``, ``JSQ`` and ``power of two`` are the paper's: prompts
are computed before decodes, first come, first served (vLLM without chunked prefills); ``default`` is on engines of the
largest parallelism, the others on those that equation 6 calls best (`mesh advise`). A100s exchange activations over
PCIe, as the paper's do. ``..., chunked``: the same on this project's engines as they are. Packing has the best of the
``--thetas``.

*The least* is what the load takes on average (`mesh advise --rate`): promises are kept to almost all requests if
nobody waits and nothing is uneven, so no placement can do with fewer for long.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from bench.harness.arguments import add_seeds, script_parser
from bench.harness.tables import print_table
from bench.papers.aladdin.setting import CONTENDERS, MODELS, Setting, attainment
from bench.simulated import run_cases
from mesh.jobs.arguments import add_jobs

MOST_ENGINES = 64


@dataclass(frozen=True, slots=True)
class Search:
    """The fewest engines of one contender in one setting, for each percentage."""

    setting: Setting
    contender: str
    percents: tuple[float, ...]
    thetas: tuple[float | None, ...]


Found = tuple[int, float | None] | None  # how many engines, with which theta; None: not `MOST_ENGINES`


def search(asked: Search) -> dict[float, Found]:
    """Try each number of engines once, whatever percentage is asked for."""

    @cache
    def attained(theta: float | None, count: int) -> float:
        return attainment(asked.setting, CONTENDERS[asked.contender], theta, count)

    bound = asked.setting.bound(CONTENDERS[asked.contender])
    first = max(1, round(1.2 * min(bound, MOST_ENGINES / 2)))
    found: dict[float, Found] = {}
    for percent in asked.percents:
        counts: list[tuple[int, float | None]] = []
        for theta in asked.thetas if CONTENDERS[asked.contender].tunes else (None,):
            count = fewest(lambda count: attained(theta, count) >= percent / 100, first)  # noqa: B023
            counts += [] if count is None else [(count, theta)]
        found[percent] = min(counts, key=lambda one: one[0], default=None)
    return found


def fewest(keeps: Callable[[int], bool], first: int) -> int | None:
    """Return the smallest number that keeps the promise, if more never break it; None: not even `MOST_ENGINES` do."""
    low, high, step = 0, first, 1
    while not keeps(high):
        if high >= MOST_ENGINES:
            return None
        low, high, step = high, min(high + step, MOST_ENGINES), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def rows(results: Mapping[Search, Mapping[float, Found]]) -> Iterator[Sequence[str]]:
    for asked, by_percent in results.items():
        setting, contender = asked.setting, CONTENDERS[asked.contender]
        size, least = setting.size(contender), setting.bound(contender)
        for percent, found in by_percent.items():
            count, theta = found or (None, None)
            engines = (f">{MOST_ENGINES}", "") if count is None else (str(count), str(count * size))
            words = setting.model, asked.contender, f"{setting.rate:g}", str(setting.seed), f"{percent:g}"
            yield *words, *engines, f"{least * size:.1f}", "" if theta is None else f"{theta:g}"


def main() -> None:
    options = _parse()
    searches = [
        Search(setting, contender, tuple(sorted(options.percent)), tuple(options.thetas))
        for setting, contender in product(_settings(options), options.contenders)
    ]
    numbers = ("rate", "seed", "%", "engines", "devices", "the least", "theta")
    found = rows(run_cases(search, searches, options.jobs))
    print_table("engines and devices that keep the promise", ("model", "contender"), numbers, found, width=160)


def _settings(options: argparse.Namespace) -> Sequence[Setting]:
    return [
        Setting(options.device, model, rate, options.warm_up, options.duration, seed)
        for model, rate, seed in product(options.models, options.rates, range(options.seeds))
    ]


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.aladdin", __doc__)
    parser.add_argument("--device", choices=sorted({device for device, _ in MODELS}), default="a100")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="of llama2-7b, -13b, -70b (default: all)")
    parser.add_argument("--rates", type=float, nargs="+", default=[5.0, 10.0], metavar="R", help="requests/s")
    parser.add_argument("--percent", type=float, nargs="+", default=[99.0, 100.0], help="that meet both promises")
    parser.add_argument("--thetas", type=float, nargs="+", default=[0.75, 0.9], metavar="T", help="that packing tries")
    parser.add_argument("--warm-up", type=float, default=30.0, metavar="SECONDS", help="(default: 30)")
    parser.add_argument("--duration", type=float, default=60.0, metavar="SECONDS", help="after it (default: 60)")
    names = [*CONTENDERS]
    parser.add_argument("--contenders", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    add_seeds(parser, 2)
    add_jobs(parser)
    options = parser.parse_args()
    known = [model for device, model in MODELS if device == options.device]
    options.models = options.models or known
    if unknown := set(options.models) - set(known):
        parser.error(f"no SLO of {unknown.pop()} on {options.device}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    main()
