"""The simulator against the mesh itself: the same requests at the same times, served here and simulated.

    python -m bench.fidelity [TOPOLOGY ...] [--rounds N] [--rate R] [--requests N] [--prompt A B] [--answer A B]

Measures each topology's engines (`mesh profile`), starts its mesh on this machine, loads it over HTTP from a process of
its own (open loop, Poisson) and simulates what was sent, twice. With the costs of the profile, and how much engines
slow each other down: that tells the profile and the simulator. And with the costs that the engines have learnt from
their steps in the end, which tells the simulator alone. Overheads and slowdowns are measured beforehand
(`bench.fidelity.overheads`); nothing is fitted to the latencies that are compared.

Machines are slower in one minute than in another. A reference (`bench.live.reference`) does the same small work all the
time. By what that took longer while requests were served than while engines were measured, latencies are divided before
they are compared with the profile. Topologies take turns in rounds; medians over rounds count. Run it alone: it says
what others used of the machine.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from rich.console import Console

from bench.fidelity.agreement import agreement_table, errors
from bench.fidelity.one_run import LEARNT, PROFILE, Found, Load, run
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.reference import reference

HERE = Path(__file__).parent
TOPOLOGIES = (
    Path("deploy/topology.toml"),
    Path("deploy/colocated.toml"),
    HERE / "three.toml",
    Path("deploy/shared.toml"),
    HERE / "rescheduling.toml",
)
SHOWN = tuple(f"{metric} {statistic}" for metric in ("TTFT", "TPOT") for statistic in ("mean", "p50", "p99"))
NOT_DIVIDED = f"{PROFILE}, not divided"
Errors = Mapping[str, Mapping[str, float]]  # by costs, then by statistic


def errors_of(found: Found) -> Errors:
    """Errors with both kinds of costs, and with the profile's beside latencies as they were."""
    kinds = {costs: found.measured_at_the_speed_of(costs) for costs in (PROFILE, LEARNT)}
    told = {costs: errors(measured, found.simulated[costs]) for costs, measured in kinds.items()}
    return {**told, NOT_DIVIDED: errors(found.measured, found.simulated[PROFILE])}


def show(console: Console, found: Found) -> None:
    served, sent = len(found.measured), len(found.outcomes)
    for costs, simulated in found.simulated.items():
        title = (
            f"{found.topology.name}, {costs}: {served} of {sent} requests served, {len(simulated)} in the simulation"
        )
        console.print(agreement_table(title, found.measured_at_the_speed_of(costs), simulated))
        console.print(f"the same engines and rule for {found.share_placed_alike(costs):.0%} of the requests")
    console.print(f"{found.overheads}\n{found.sharing}\n{found.conditions}")
    console.print(f"the reference took {found.slowness:.3f} times as long as when the engines were measured")
    console.print(f"sent at most {1e3 * found.sent_late_s:.0f} ms late")


def show_medians(console: Console, rounds: Mapping[Path, Sequence[Errors]]) -> None:
    """Print the medians over the rounds of each topology."""
    number = max(len(each) for each in rounds.values())
    table = make_table(f"error, median of {number} rounds", ("topology", "costs"), SHOWN)
    for path, each in rounds.items():
        for costs in each[0]:
            values = (median(one[costs].get(statistic, 0.0) for one in each) for statistic in SHOWN)
            table.add_row(path.stem, costs, *(f"{value:+.1%}" for value in values), end_section=costs == NOT_DIVIDED)
    console.print(table)


def compare(options: argparse.Namespace) -> None:
    console, load_ = make_console(), Load(options.requests, options.rate, tuple(options.prompt), tuple(options.answer))
    rounds: dict[Path, list[Errors]] = {path: [] for path in options.topologies}
    kept = []
    with reference() as machine:
        for number in range(options.rounds):
            for path in options.topologies:
                found = run(path, load_, machine, options.seed + number)
                rounds[path].append(errors_of(found))
                show(console, found)
                kept.append({"topology": path.name, "slowness": found.slowness, "errors": rounds[path][-1]})
                kept[-1] |= {"conditions": asdict(found.conditions), "sent": found.sent, "outcomes": found.outcomes}
                write_json(options.json, kept)
    show_medians(console, rounds)


def main() -> None:
    parser = script_parser("bench.fidelity", __doc__, rounds=3, json=True)
    parser.add_argument(
        "topologies",
        type=Path,
        nargs="*",
        default=TOPOLOGIES,
        metavar="TOPOLOGY",
        help="(default: two engines, one of two threads, three, two services, rescheduling)",
    )
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second (default: 0.5)")
    parser.add_argument("--requests", type=int, default=120, metavar="N", help="of each run (default: 120)")
    parser.add_argument("--prompt", type=int, nargs=2, default=(16, 256), metavar=("A", "B"), help="tokens")
    parser.add_argument("--answer", type=int, nargs=2, default=(8, 64), metavar=("A", "B"), help="tokens")
    parser.add_argument("--seed", type=int, default=0)
    with errors_in_a_line():
        compare(parser.parse_args())


if __name__ == "__main__":
    main()
