"""How many engines keep the promise at a rate of requests: packing beside what does not pack (Aladdin, section 6).

    python -m bench.papers.aladdin [--ask links engines decodes testbed] [--device a100] [--models llama2-13b ...]
        [--rates 10 20 30 40] [--percent 99 100] [--by-rule] [--link 10 20] [--contenders NAME ...] [--thetas 0.9 0.75]

``links``: what links between devices make of the paper's tables 2 and 3. ``engines``: of each contender the fewest
that keep the promise (figure 11), searched by growing steps and halving. ``decodes``: the same where prompts cost
nothing, as on the decode engines of a split service (figure 12). ``testbed``: one machine of four devices under
growing load (figures 9 and 10): attainment and the P99 of TPOT.

SLOs are Aladdin's (table 2), or with ``--by-rule`` what its rule gives for these engines. A promise counts as kept if
so many percent of the requests get both their first token and their tokens in time, and the backlog does not grow.
Requests come at random (Poisson), with ShareGPT's lengths as Llumnix's table has them, and those of the first
``--warm-up`` seconds are served, but not counted. ``default``, ``JSQ`` and ``power of two`` are the paper's: prompts
are computed before decodes, first come, first served (vLLM without chunked prefills). ``default`` is on engines of the
largest parallelism, the others are on those of table 3. A100s exchange activations over ``--link``, in GB/s and us.
``..., chunked``: the same on this project's engines as they are. Packing has the best of the ``--thetas``.

*The least* is what the load takes on average (`mesh advise --rate`): promises are kept to almost all requests if
nobody waits and nothing is uneven, so no placement can do with fewer for long.

Runs are kept below ``--out``: interrupted, or with another question, the bench goes on where it was.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product

from bench.harness.arguments import add_names, script_parser
from bench.harness.long_runs import LongRuns
from bench.harness.tables import print_table
from bench.papers.aladdin import testbed
from bench.papers.aladdin.links import link_rows
from bench.papers.aladdin.search import Found, Search, rows, savings, search
from bench.papers.aladdin.setting import CONTENDERS, LARGEST, MODELS, PCIE, Case, Link, Result, Setting, run_case

ASKED = ("links", "engines", "decodes", "testbed")
SECONDS_A_REQUEST, RUNS_OF_A_SEARCH = 0.008, 6
WIDTH = 160


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    if "links" in options.ask:
        headings = "70B's prefill of 4096 tokens, ms", "1.3 x TPOT, ms", "best devices an engine"
        title = "links between A100s; * as in the paper's tables 2 and 3, within 5 %"
        print_table(title, ("link",), headings, link_rows(), WIDTH)
    for asked in ("engines", "decodes"):
        if asked in options.ask:
            _search(asked, options)
    if "testbed" in options.ask:
        _testbed(options)


def _search(asked: str, options: argparse.Namespace) -> None:
    searches = [
        Search(setting, contender, tuple(sorted(options.percent)), tuple(options.thetas))
        for setting, contender in product(_settings(options, asked == "decodes"), options.contenders)
    ]
    runs = LongRuns(search, list[Found], lambda one: RUNS_OF_A_SEARCH * _about_s(one.setting))
    found = runs.run(searches, options.jobs, options.out, asked)
    numbers = ("rate", "seed", "%", "engines", "devices", "the least", "theta")
    print_table(f"{asked}: the fewest that keep the promise", ("model", "contender"), numbers, rows(found), WIDTH)
    headings = ("rate", "%", "devices", "the least", "packing saves, %", "packing in slack saves, %")
    title = f"{asked}: means of {options.seeds} seeds, and what packing saves, with 95 % intervals of paired seeds"
    print_table(title, ("model", "contender"), headings, savings(found), WIDTH)


def _testbed(options: argparse.Namespace) -> None:
    cases = []
    for setting, name, share in product(_settings(options, False), testbed.CONTENDERS, testbed.LOADS):
        size = setting.size(CONTENDERS[name])
        loaded = testbed.loaded(setting, share)
        cases.append(Case(loaded, name, options.thetas[0] if CONTENDERS[name].tunes else None, LARGEST // size))
    cases = [*dict.fromkeys(cases)]
    runs = LongRuns(run_case, Result, lambda one: _about_s(one.setting))
    found = runs.run(cases, options.jobs, options.out, "testbed")
    headings = ("req/s", "kept, %", "TPOT P99, ms", "")
    print_table("four devices", ("model", "contender"), headings, testbed.rows(found), WIDTH)
    print_table("packing at its best load", ("model", "against"), testbed.GAINS, testbed.gains(found), WIDTH)


def _about_s(setting: Setting) -> float:
    return SECONDS_A_REQUEST * setting.rate * (setting.warm_up_s + setting.duration_s)


def _settings(options: argparse.Namespace, only_decodes: bool) -> Iterator[Setting]:
    link = Link(options.link[0] * 1e9, options.link[1] * 1e-6)
    for model, rate, seed in product(options.models, options.rates, range(options.seeds)):
        times = options.warm_up, options.duration
        yield Setting(options.device, model, rate, *times, seed, link, options.by_rule, only_decodes)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.papers.aladdin", __doc__, seeds=3, jobs=True, out="aladdin")
    add_names(parser, "--ask", ASKED)
    parser.add_argument("--device", choices=sorted({device for device, _ in MODELS}), default="a100")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="of llama2-7b, -13b, -70b (default: all)")
    rates = [10.0, 20.0, 30.0, 40.0]
    parser.add_argument("--rates", type=float, nargs="+", default=rates, metavar="R", help="requests/s")
    parser.add_argument("--percent", type=float, nargs="+", default=[99.0, 100.0], help="that meet both promises")
    parser.add_argument("--by-rule", action="store_true", help="promise 1.3 times the TPOT of a lone request")
    link = [PCIE.bytes_per_s / 1e9, PCIE.hop_s * 1e6]
    parser.add_argument("--link", type=float, nargs=2, default=link, metavar=("GB/S", "US"), help="(default: 10 20)")
    parser.add_argument("--thetas", type=float, nargs="+", default=[0.9, 0.75], metavar="T", help="that packing tries")
    parser.add_argument("--warm-up", type=float, default=30.0, metavar="SECONDS", help="(default: 30)")
    parser.add_argument("--duration", type=float, default=60.0, metavar="SECONDS", help="after it (default: 60)")
    add_names(parser, "--contenders", CONTENDERS)
    options = parser.parse_args(arguments)
    known = [model for device, model in MODELS if device == options.device]
    options.models = options.models or known
    if unknown := set(options.models) - set(known):
        parser.error(f"no SLO of {unknown.pop()} on {options.device}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    main()
