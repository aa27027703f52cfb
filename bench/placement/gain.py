"""What local search gains over algorithm 1, and what it leaves to the best plan that there is.

    python -m bench.placement.gain [--devices 4] [--services 2] [--rates 4,8] [--seeds 3] [--roles]
        [--batches 40] [--requests-per-service 40] [--jobs 2]

Small clusters, so that every plan can be scored: each way to cut the cluster, each set of services on each group and,
with ``--roles``, each role. All plans are scored in parts, the best of them whole: a few of the greedy and the improved
ones, 16 of all; and 24 drawn at random, to see how far parts and whole are apart. Attainment is at an SLO of 5 times
each request's execution time alone, latency is normalised by it.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, groupby, islice, product
from random import Random
from statistics import fmean

from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.placement import setting
from mesh.wire.control import Role
from router.placement.observe.requirements import Catalogue, Cluster
from router.placement.search.greedy import Scored, best_first, greedy
from router.placement.search.improve import improve
from router.placement.search.partition import partitions
from router.placement.search.plan import Group, Plan, has_all_phases
from router.placement.search.search import SHORTLIST
from simulation.placement.evaluator import Simulated, Simulators

AT_A_TIME = 200  # plans
WHOLE = 16  # of all plans, those with the best parts that are scored whole
COMPARED = 24  # of all plans, drawn at random, that are scored in parts and whole


@dataclass(frozen=True, slots=True)
class Line:
    """One traffic on one cluster: the best plans that three ways find, scored whole."""

    rate: float
    seed: int
    greedy: Scored
    improved: Scored
    best: Scored
    apart: list[float]  # how far attainment in parts and whole are apart, by plan
    num_plans: int


def main() -> None:
    parser = script_parser("bench.placement.gain", __doc__)
    parser.add_argument("--devices", type=int, default=4, metavar="N", help="of one host")
    parser.add_argument("--services", type=int, default=2, metavar="N")
    parser.add_argument("--rates", type=_rates, default=(4.0, 8.0), metavar="R,...", help="requests a second, of all")
    add_seeds(parser, 3)
    parser.add_argument("--roles", action="store_true", help="engines for one phase are among the plans")
    parser.add_argument("--batches", type=int, default=40, metavar="N", help="of neighbours, eight each")
    parser.add_argument("--requests-per-service", type=float, default=40.0, metavar="N", help="on average")
    add_jobs(parser)
    options = parser.parse_args()
    with Simulators(options.jobs) as simulators:
        lines = [measure(simulators, options, rate, seed) for rate in options.rates for seed in range(options.seeds)]
    make_console(140).print(_table(lines))


def _rates(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def measure(simulators: Simulators, options: argparse.Namespace, rate: float, seed: int) -> Line:
    models = setting.services(options.services)
    catalogue, cluster = setting.catalogue(models), setting.cluster(options.devices)
    span_s = options.requests_per_service * options.services / rate
    asked = setting.traffic(list(models), rate, span_s, Random(f"{seed}/traffic"))
    slos = dict.fromkeys(models, setting.SLO)
    evaluator = simulators.evaluator(catalogue, asked, slos, slo_factor=setting.SLO_FACTOR, seed=seed)
    made = greedy(partitions(cluster, catalogue), catalogue, asked, evaluator)
    improved = improve(made, catalogue, evaluator, Random(seed), lambda done: done >= options.batches, lambda _: False)
    by_greedy = _whole(made[:SHORTLIST], evaluator)
    by_search = best_first([by_greedy, _whole(improved, evaluator)])[0]
    plans = list(every_plan(cluster, catalogue, has_roles=options.roles))
    best = best_first([_whole(_best(plans, evaluator), evaluator), by_search])[0]
    apart = _apart(Random(seed).sample(plans, min(COMPARED, len(plans))), evaluator)
    return Line(rate, seed, by_greedy, by_search, best, apart, len(plans))


def _apart(plans: Sequence[Plan], evaluator: Simulated) -> list[float]:
    pairs = zip(evaluator(plans), evaluator.exact(plans), strict=True)
    return [abs(parts.attainment - whole.attainment) for parts, whole in pairs]


def _best(plans: Sequence[Plan], evaluator: Simulated) -> list[Scored]:
    """By their parts, as many as are scored whole."""
    best: list[Scored] = []
    remaining = iter(plans)
    while some := list(islice(remaining, AT_A_TIME)):
        scored = [Scored(*pair) for pair in zip(some, evaluator(some), strict=True)]
        best = best_first([*best, *scored])[:WHOLE]
    return best


def _whole(scored: Sequence[Scored], evaluator: Simulated) -> Scored:
    """The best of them when they are scored whole."""
    plans = [one.plan for one in scored]
    return best_first([Scored(*pair) for pair in zip(plans, evaluator.exact(plans), strict=True)])[0]


def every_plan(cluster: Cluster, catalogue: Catalogue, *, has_roles: bool) -> Iterator[Plan]:
    """Plans that place all services: one of those that differ by the order of equal groups of a host alone."""
    roles = tuple(Role) if has_roles else (Role.MULTIPLEX,)
    for groups in partitions(cluster, catalogue, pruned=False):
        alike = [list(those) for _, those in groupby(groups, key=lambda group: (group.host, group.num_devices))]
        contents = [
            combinations_with_replacement(list(_contents(catalogue, those[0].num_devices, roles)), len(those))
            for those in alike
        ]
        for chosen in product(*contents):
            plan = Plan(
                tuple(
                    Group(group.id, group.host, group.first, group.num_devices, services, role)
                    for those, held in zip(alike, chosen, strict=True)
                    for group, (services, role) in zip(those, held, strict=True)
                )
            )
            if plan.services == set(catalogue.services) and has_all_phases(plan, catalogue.services):
                yield plan


def _contents(catalogue: Catalogue, num_devices: int, roles: Sequence[Role]) -> Iterator[tuple[tuple[str, ...], Role]]:
    """What a group of that size can hold, and be; one that holds nothing can be improved upon."""
    for num_services in range(1, catalogue.max_sharing + 1):
        for services in combinations(catalogue.services, num_services):
            if catalogue.fits(services, num_devices):
                for role in roles:
                    yield services, role


def in_words(plan: Plan) -> str:
    """Each group as devices, role and services: ``2m:s00+s01``."""
    return " ".join(
        f"{group.num_devices}{group.role[0]}:{'+'.join(group.services) or '-'}"
        for group in sorted(plan.groups, key=lambda group: (-group.num_devices, group.services, group.role))
    )


def _table(lines: Sequence[Line]) -> Table:
    numbers = ("rate", "seed", "greedy", "improved", "best of all", "parts off", "plans")
    table = make_table("attainment and normalised latency", (), numbers)
    table.add_column("best plan")
    for line in lines:
        scores = (f"{one.score.attainment:.3f} {one.score.normalized_latency:.2f}" for one in _ways(line))
        apart = f"{fmean(line.apart):.3f}, {max(line.apart):.3f}"
        table.add_row(f"{line.rate:g}", str(line.seed), *scores, apart, str(line.num_plans), in_words(line.best.plan))
    table.add_row("mean", "", *(_mean(scored) for scored in zip(*map(_ways, lines), strict=True)))
    return table


def _ways(line: Line) -> tuple[Scored, Scored, Scored]:
    return line.greedy, line.improved, line.best


def _mean(scored: Sequence[Scored]) -> str:
    attainment = fmean(one.score.attainment for one in scored)
    return f"{attainment:.3f} {fmean(one.score.normalized_latency for one in scored):.2f}"


if __name__ == "__main__":
    main()
