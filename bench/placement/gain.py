"""What local search gains over algorithm 1, and what it leaves to the best plan that there is.

    python -m bench.placement.gain [--devices 4] [--services 2] [--rates 4,8] [--seeds 3] [--roles] [--out FILE]
        [--batches 40] [--requests-per-service 40] [--jobs 2] [--no-exhaustive]

Small clusters, so that every plan can be scored: each way to cut the cluster, each set of services on each group and,
with ``--roles``, each role. All plans are scored in parts, the best of them whole: a few of the greedy and the improved
ones, 16 of all; and 24 drawn at random, to see how far parts and whole are apart. Attainment is at an SLO of 5 times
each request's execution time alone, latency is normalised by it.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, combinations_with_replacement, groupby, islice, product
from pathlib import Path
from random import Random

import msgspec
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
    """One traffic on one cluster. Attainments and normalised latencies of plans scored whole."""

    num_devices: int
    num_services: int
    rate: float
    seed: int
    greedy: tuple[float, float]
    improved: tuple[float, float]
    best: tuple[float, float] | None
    apart: tuple[float, float] | None  # attainments in parts and whole: on average, and at most
    num_plans: int
    improved_plan: str
    best_plan: str


def main() -> None:
    parser = script_parser("bench.placement.gain", __doc__)
    parser.add_argument("--devices", type=int, default=4, metavar="N", help="of one host")
    parser.add_argument("--services", type=int, default=2, metavar="N")
    parser.add_argument("--rates", type=_rates, default=(4.0, 8.0), metavar="R,...", help="requests a second, of all")
    add_seeds(parser, 3)
    parser.add_argument("--roles", action="store_true", help="engines for one phase are among the plans")
    parser.add_argument("--batches", type=int, default=40, metavar="N", help="of neighbours, eight each")
    parser.add_argument("--requests-per-service", type=float, default=40.0, metavar="N", help="on average")
    parser.add_argument("--no-exhaustive", action="store_true", help="for larger clusters")
    add_jobs(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the lines as JSON there")
    options = parser.parse_args()
    with Simulators(options.jobs) as simulators:
        lines = [measure(simulators, options, rate, seed) for rate in options.rates for seed in range(options.seeds)]
    make_console(140).print(_table(lines))
    if options.out is not None:
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode([asdict(line) for line in lines])))


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
    plans = [] if options.no_exhaustive else list(every_plan(cluster, catalogue, has_roles=options.roles))
    by_greedy, by_search = _whole(made[:SHORTLIST], evaluator), _whole(improved, evaluator)
    best = _whole(_best(plans, evaluator), evaluator)
    assert by_greedy is not None, "there is a plan for each way to cut the cluster"
    assert by_search is not None, "it begins with those"
    by_search = best_first([by_greedy, by_search])[0]
    best = None if best is None else best_first([best, by_search])[0]
    return Line(
        options.devices,
        options.services,
        rate,
        seed,
        _numbers(by_greedy),
        _numbers(by_search),
        _numbers(best) if best is not None else None,
        _apart(Random(seed).sample(plans, min(COMPARED, len(plans))), evaluator),
        len(plans),
        in_words(by_search.plan),
        in_words(best.plan) if best is not None else "",
    )


def _apart(plans: Sequence[Plan], evaluator: Simulated) -> tuple[float, float] | None:
    pairs = zip(evaluator(plans), evaluator.exact(plans), strict=True)
    apart = [abs(parts.attainment - whole.attainment) for parts, whole in pairs]
    return (sum(apart) / len(apart), max(apart)) if apart else None


def _best(plans: Sequence[Plan], evaluator: Simulated) -> list[Scored]:
    """By their parts, as many as are scored whole."""
    best: list[Scored] = []
    remaining = iter(plans)
    while some := list(islice(remaining, AT_A_TIME)):
        scored = [Scored(*pair) for pair in zip(some, evaluator(some), strict=True)]
        best = best_first([*best, *scored])[:WHOLE]
    return best


def _numbers(scored: Scored) -> tuple[float, float]:
    return scored.score.attainment, scored.score.normalized_latency


def _whole(scored: Sequence[Scored], evaluator: Simulated) -> Scored | None:
    """The best of them when they are scored whole; None of none."""
    plans = [one.plan for one in scored]
    return next(iter(best_first([Scored(*pair) for pair in zip(plans, evaluator.exact(plans), strict=True)])), None)


def every_plan(cluster: Cluster, catalogue: Catalogue, *, has_roles: bool) -> Iterator[Plan]:
    """That places all services. Of plans that differ by the order of equal groups of a host there is one."""
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
    table = make_table("attainment and normalised latency", ())
    for heading in ("rate", "seed", "greedy", "improved", "best of all", "parts off", "plans", "improved plan"):
        table.add_column(heading, justify="left" if heading == "improved plan" else "right")
    for line in lines:
        scores = [
            "" if score is None else f"{score[0]:.3f} {score[1]:.2f}"
            for score in (line.greedy, line.improved, line.best)
        ]
        apart = "" if line.apart is None else "{:.3f}, {:.3f}".format(*line.apart)
        table.add_row(f"{line.rate:g}", str(line.seed), *scores, apart, str(line.num_plans), line.improved_plan)
    for name, column in (("mean", [line.rate for line in lines]),):
        table.add_row(name, "", *_means(lines), "", "", f"{len(column)} cases")
    return table


def _means(lines: Sequence[Line]) -> list[str]:
    columns = [[line.greedy for line in lines], [line.improved for line in lines]]
    if all(line.best is not None for line in lines):
        columns.append([line.best for line in lines if line.best is not None])
    means = [
        f"{sum(score[0] for score in column) / len(column):.3f} {sum(score[1] for score in column) / len(column):.2f}"
        for column in columns
    ]
    return [*means, *[""] * (3 - len(means))]


if __name__ == "__main__":
    main()
