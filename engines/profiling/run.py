"""Measures, fits, shows, draws and keeps the profile of each distinct engine of a topology."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from engines.costs.formulas import LETTERS, decode_formula, kv_formula, mixed_formula, prefill_formula
from engines.costs.measuring import (
    DecodePoint,
    MixedPoint,
    Point,
    PrefillPoint,
    Rounds,
    Scratch,
    Times,
    as_typical,
    fit,
    time_points,
    usual_sampling,
)
from engines.costs.profiles import ProfileFile
from engines.costs.step_cost import StepCost
from engines.models.cache import Cache
from engines.profiling.grid import Accuracy, GridBounds, Kind, accuracy, points_to_fit, points_to_judge
from engines.profiling.plot import profile_picture
from engines.profiling.store import ProfileStore, profile_of
from engines.torch_engine.backend import TorchModel, key_of, load_executor, open_memory, open_model
from mesh.errors import UserError
from mesh.show.figures import MISSING, has_matplotlib, write_picture
from mesh.show.output import Showing
from mesh.show.pages import Page, PageTable
from mesh.show.progress import working
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology

KINDS: Mapping[str, Kind] = {"prefill": PrefillPoint, "decode step": DecodePoint, "both in one step": MixedPoint}

KEYS = {"prefill": "prefill", "decode step": "decode", "both in one step": "mixed"}  # in the file


@dataclass(frozen=True, slots=True)
class Measured:
    """Costs of undisturbed steps, the times that they were fitted to, and others that judge them.

    ``rounds`` tell how much longer steps take on the whole.
    """

    cost: StepCost
    fitted: Times
    held_out: Times
    rounds: Rounds

    def accuracies(self) -> dict[str, Accuracy]:
        """Return the accuracies of the kinds of iterations that were held out: engines of little memory compute no
        mixed ones.
        """
        kinds = {name: kind for name, kind in KINDS.items() if any(isinstance(point, kind) for point in self.held_out)}
        return {name: accuracy(self.cost, self.held_out, kind) for name, kind in kinds.items()}


def profile_engines(topology: Topology, repeats: int, showing: Showing) -> None:
    """Raise `UserError` if there is nothing to measure, or an engine cannot be."""
    store = ProfileStore.of(Cache.of_user())
    pages = []
    for key, (engine, spec) in _distinct(topology).items():
        model = open_model(engine, spec, open_memory(engine, [spec]))
        measured = _measure(engine, model, repeats)
        profile = _profile(engine, model, measured, f"mesh profile, {repeats} rounds")
        _show(profile, measured)
        path = store.save(key, profile)
        sys.stdout.write(f"saved {path}\n")
        pages.append(_page(profile, measured))
        _draw(path.with_suffix(".png"), pages[-1])
    showing.put(lambda: _joined(pages))


def _distinct(topology: Topology) -> dict[str, tuple[EngineSpec, ServiceSpec]]:
    """One engine for each thing to measure, by its key."""
    distinct: dict[str, tuple[EngineSpec, ServiceSpec]] = {}
    for engine in topology.engines:
        for name in engine.services if engine.backend == "torch" else ():
            spec = topology.service(name)
            distinct.setdefault(key_of(engine, spec), (engine, spec))
    if not distinct:
        if servers := topology.servers:
            how = f"measure them with `mesh profile --url {next(iter(servers.values())).url}`"
        else:
            how = "with --live, running engines tell what they learnt"
        raise UserError(f'{topology.path}: no engine has backend = "torch", so there is nothing to measure here; {how}')
    return distinct


def _measure(engine: EngineSpec, model: TorchModel, repeats: int) -> Measured:
    layout, name = model.memory.layout, model.spec.name
    scratch = Scratch(name, layout.num_blocks, engine.block_size, usual_sampling(model.spec))
    bounds = GridBounds(engine.chunk_tokens, engine.max_running, model.config.max_context, layout.num_tokens)
    to_fit = [point for point in points_to_fit(bounds) if scratch.batch(point)]
    to_judge = [point for point in points_to_judge(bounds) if scratch.batch(point) and point not in to_fit]
    for kind in (PrefillPoint, DecodePoint):
        _check_enough(engine, kind, to_fit, to_judge)
    executor = load_executor(engine, [model])
    with working(f"measuring {name}", (repeats + 1) * (len(to_fit) + len(to_judge))) as shown:
        rounds = time_points(executor, scratch, [*to_fit, *to_judge], repeats, shown.advance)
    times = rounds.fastest()
    fitted = {point: times[point] for point in to_fit}
    return Measured(fit(fitted), fitted, {point: times[point] for point in to_judge}, rounds)


def _check_enough(engine: EngineSpec, kind: type, *grids: list[Point]) -> None:
    if not all(any(isinstance(point, kind) for point in points) for points in grids):
        raise UserError(f"engines.{engine.id}: too small to profile; use larger kv_memory, chunk_tokens or max_running")


def _profile(engine: EngineSpec, model: TorchModel, measured: Measured, source: str) -> ProfileFile:
    error: dict[str, float] = {}
    for name, judged in measured.accuracies().items():
        error |= {f"{KEYS[name]}_p50": judged.p50, f"{KEYS[name]}_p90": judged.p90}
    return profile_of(
        engine, model.spec, model.memory.layout.shape, as_typical(measured.cost, measured.rounds), source, error
    )


def _show(profile: ProfileFile, measured: Measured) -> None:
    table = Table(title=profile.name, title_justify="left", caption="errors on points held out of the fit")
    for column in ("cost", "fit, ms", "points", "error p50", "error p90"):
        table.add_column(column, justify="left" if column in ("cost", "fit, ms") else "right")
    formulas = {
        "prefill": prefill_formula(profile.prefill),
        "decode step": decode_formula(profile.decode),
        "both in one step": mixed_formula(profile.mixed),
    }
    for name, errors in measured.accuracies().items():
        table.add_row(name, formulas[name], str(errors.num_points), f"{errors.p50:.1%}", f"{errors.p90:.1%}")
    Console().print(table)
    prefill, decode = (measured.rounds.typical(kind) for kind in (PrefillPoint, DecodePoint))
    sys.stdout.write(
        f"steps take {prefill:.2f}x (prefill) and {decode:.2f}x (decode) of the fastest rounds on the whole: "
        "the fit has that in it, errors are those of its shape\n"
    )
    sys.stdout.write(f"{kv_formula(profile.profile())}\n{LETTERS}\n")


def _page(profile: ProfileFile, measured: Measured) -> Page:
    rows = [
        [name, f"{errors.num_points}", f"{errors.p50:.1%}", f"{errors.p90:.1%}"]
        for name, errors in measured.accuracies().items()
    ]
    picture = profile_picture(profile.name, measured.cost, measured.fitted, measured.held_out)
    heads = ("points held out of the fit", "number", "error p50", "error p90")
    return Page(profile.name, profile.source, (picture,), tables=[PageTable(profile.name, heads, rows)])


def _joined(pages: Sequence[Page]) -> Page:
    """One page of all engines. The first one's picture is the one that is drawn alone."""
    if len(pages) == 1:
        return pages[0]
    pictures, tables = ([one for page in pages for one in getattr(page, what)] for what in ("pictures", "tables"))
    return Page("Profiles", pages[0].about, pictures, tables=tables)


def _draw(path: Path, page: Page) -> None:
    if not has_matplotlib():
        sys.stdout.write(f"no picture: drawing {MISSING}\n")
        return
    write_picture(path, page.pictures[0])
    sys.stdout.write(f"drew  {path}\n")
