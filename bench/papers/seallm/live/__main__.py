"""Services that share two engines, live: disciplines beside each other, and placements that change while requests run.

    python -m bench.papers.seallm.live [--setting two|three] [--seeds 3] [--only NAME ...] [--scale 1] [--out DIR]

Real processes: gateway, engines, plans and migrations. Engines take the time of an A10 with Llama-2-7B instead of
computing, which needs little of the machine. Of the three phases the first and last are full of long requests, the
second of short ones. With `three` services two at most are on an engine: the one that is busy can have both engines,
and it is another one in the second phase.

First the requests of a seed are served one by one: that gives each its undisturbed latency and (greedy) tokens. Then
each contender gets the same requests at the same times on a mesh of its own. One placement for all the time, by
discipline: db, fcfs, round_robin, slo. An engine each. And with db: a plan made for the first phase and kept, or
changed with each phase by `mesh plan apply` while requests run. With `three`, a placement daemon changes the plan for
the first phase when it wants to. Normalised latency is latency over the mean undisturbed one of the service; a promise
is 5 times the request's own. Run it alone: it says what others used of the machine.
"""

import argparse

from rich.progress import Progress

from bench.harness.arguments import add_out, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import progress_bar
from bench.harness.tables import make_console
from bench.papers.live import turned
from bench.papers.seallm.live.report import Summary, report
from bench.papers.seallm.live.run import Run, serve, serve_alone
from bench.papers.seallm.live.setting import SETTINGS, draw
from mesh.errors import UserError


def run_all(options: argparse.Namespace, progress: Progress) -> list[Run]:
    """Serve all seeds with all contenders, each time another one first, so that what drifts falls on all."""
    setting = SETTINGS[options.setting]
    chosen = [one for one in setting.contenders if one.name in options.only]
    requests = {seed: draw(setting, seed, options.scale) for seed in range(options.seeds)}
    task = progress.add_task("", total=(1 + len(chosen)) * sum(map(len, requests.values())))
    runs = []
    for seed, asked in requests.items():
        progress.update(task, description=f"seed {seed}: undisturbed")
        alone = serve_alone(setting, asked, lambda: progress.advance(task))
        for one in turned(chosen, seed):
            progress.update(task, description=f"seed {seed}: {one.name}")
            run = serve(setting, one, seed, asked, alone, lambda: progress.advance(task))
            progress.console.print(f"seed {seed}: {one.name}: {Summary.of(run.outcomes)}")
            runs.append(run)
    names = [one.name for one in chosen]
    return sorted(runs, key=lambda run: names.index(run.contender))


def _arguments() -> argparse.Namespace:
    parser = script_parser("bench.papers.seallm.live", __doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="two", help="services that share (default: two)")
    add_seeds(parser, 3)
    names = list(dict.fromkeys(one.name for setting in SETTINGS.values() for one in setting.contenders))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="; ".join(names))
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="times as many requests (default: 1)")
    add_out(parser, "sharing_live")
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    with progress_bar() as progress:
        try:
            runs = run_all(options, progress)
        except UserError as error:
            raise SystemExit(str(error)) from None
    report(make_console(140), runs)
    write_json(options.out / "sharing_live.json", runs)


if __name__ == "__main__":
    main()
