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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.harness.arguments import add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.papers.aladdin.setting import CONTENDERS, MODELS, Contender, Setting, Trial, serve, trial_of
from mesh.topology.schema import PolicySpec

MOST_ENGINES = 64


@dataclass(frozen=True, slots=True)
class Found:
    """The fewest engines that keep the promise, and what came of it with one engine less. None: not `MOST_ENGINES`."""

    setting: Setting
    contender: Contender
    percent: float
    num_engines: int | None = None
    theta: float | None = None
    one_less: Trial | None = None


class Trials:
    """Tries fleets of one contender under one load, each once, whatever percentage is asked for."""

    def __init__(self, setting: Setting, contender: Contender) -> None:
        self._setting = setting
        self._contender = contender
        self._known: dict[tuple[float | None, int], Trial] = {}

    def of(self, policy: PolicySpec, num_engines: int) -> Trial:
        key = theta_of(policy), num_engines
        if key not in self._known:
            self._known[key] = trial_of(serve(self._setting, self._contender, policy, num_engines))
        return self._known[key]

    def fewest(self, percent: float, thetas: Sequence[float], first: int) -> Found:
        """Search with the best of the thetas."""
        best: tuple[int, PolicySpec] | None = None
        for policy in self._contender.policies(thetas):

            def keeps(count: int, policy: PolicySpec = policy) -> bool:
                return self.of(policy, count).keeps(percent)

            count = fewest(keeps, first) if best is None else fewer(keeps, best[0])
            if count is not None and (best is None or count < best[0]):
                best = count, policy
        if best is None:
            return Found(self._setting, self._contender, percent)
        count, policy = best
        one_less = self.of(policy, count - 1) if count > 1 else None
        return Found(self._setting, self._contender, percent, count, theta_of(policy), one_less)


def theta_of(policy: PolicySpec) -> float | None:
    theta = policy.parameters.get("theta")
    return theta if isinstance(theta, float) else None


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


def fewer(keeps: Callable[[int], bool], enough: int) -> int:
    """Return the smallest number that keeps the promise, tried one by one from a number that is known to do."""
    while enough > 1 and keeps(enough - 1):
        enough -= 1
    return enough


def search(
    setting: Setting, contenders: Sequence[Contender], percents: Sequence[float], thetas: Sequence[float]
) -> Iterator[Found]:
    """Yield what is found for each contender and percentage."""
    for contender in contenders:
        trials, first = Trials(setting, contender), max(1, round(1.2 * min(setting.bound(contender), MOST_ENGINES / 2)))
        for percent in sorted(percents):
            found = trials.fewest(percent, thetas, first)
            first = found.num_engines or first
            yield found


def table(found: Sequence[Found]) -> Table:
    numbers = ("rate", "seed", "%", "engines", "devices", "the least", "theta")
    shown = make_table("engines and devices that keep the promise", ("model", "contender", "one engine less"), numbers)
    for one in found:
        setting, contender = one.setting, one.contender
        size, least, theta = setting.size(contender), setting.bound(contender), one.theta
        counts = (f">{MOST_ENGINES}", "") if one.num_engines is None else (one.num_engines, one.num_engines * size)
        cells = setting.seed, f"{one.percent:g}", *counts, f"{least * size:.1f}", "" if theta is None else f"{theta:g}"
        shown.add_row(setting.model, contender.name, str(one.one_less or ""), f"{setting.rate:g}", *map(str, cells))
    return shown


def main() -> None:
    options = _parse()
    chosen = [one for one in CONTENDERS if one.name in options.contenders]
    settings = [
        Setting(options.device, model, rate, options.warm_up, options.duration, seed)
        for model in options.models
        for rate in options.rates
        for seed in range(options.seeds)
    ]
    found = [one for setting in settings for one in search(setting, chosen, options.percent, options.thetas)]
    make_console(160).print(table(found))


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.aladdin", __doc__)
    parser.add_argument("--device", choices=sorted({device for device, _ in MODELS}), default="a100")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="of llama2-7b, -13b, -70b (default: all)")
    parser.add_argument("--rates", type=float, nargs="+", default=[5.0, 10.0], metavar="R", help="requests/s")
    parser.add_argument("--percent", type=float, nargs="+", default=[99.0, 100.0], help="that meet both promises")
    parser.add_argument("--thetas", type=float, nargs="+", default=[0.75, 0.9], metavar="T", help="that packing tries")
    parser.add_argument("--warm-up", type=float, default=30.0, metavar="SECONDS", help="(default: 30)")
    parser.add_argument("--duration", type=float, default=60.0, metavar="SECONDS", help="after it (default: 60)")
    add_seeds(parser, 2)
    names = [one.name for one in CONTENDERS]
    parser.add_argument("--contenders", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    options = parser.parse_args()
    known = [model for device, model in MODELS if device == options.device]
    options.models = options.models or known
    if unknown := set(options.models) - set(known):
        parser.error(f"no SLO of {unknown.pop()} on {options.device}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    main()
