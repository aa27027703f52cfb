"""Which runs each figure is made of: 6 to 13, numbered as the paper orders what it shows.

Figure 9 is ablation -A, a plan that stays, in longer runs, as plans change during them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.papers.seallm.testbed.cells import Cell
from bench.papers.seallm.testbed.scene import Scene
from bench.papers.seallm.testbed.systems import ABLATIONS, OURS, REPLACING, RIVALS, STRICT, System

FIGURES = (6, 7, 8, 9, 10, 11, 12, 13)
DEVICES = (64, 48, 32, 16)
IN_A_ROW = (1, 4, 16)
ERRORS = (0.0, 1.0, 4.0, 16.0)
RATE_AXIS: tuple[str, Callable[[Scene], float]] = "requests a second", lambda scene: scene.rate
AXES: Mapping[int, tuple[str, Callable[[Scene], float]]] = {  # of the figures that vary something else
    11: ("density (1: 32 devices)", lambda scene: 32 / scene.num_devices),
    12: ("requests of a service in a row", lambda scene: scene.in_a_row),
    13: ("error of answers' lengths", lambda scene: scene.error),
}


@dataclass(frozen=True, slots=True)
class Range:
    """``rates`` of figures 6 to 8; ``rate`` of the others. A run has ``num_requests`` or lasts ``least_s``."""

    rates: Sequence[float]
    rate: float
    num_requests: int
    least_s: float
    seeds: int
    with_strict: bool = False  # systems that are first come, first served to the letter, too
    replaced_s: float = 600.0  # of a run of figure 9

    def scenes(self, figure: int) -> list[Scene]:
        """Return the scenes of one seed after the other."""
        return [scene for seed in range(self.seeds) for scene in self._scenes(figure, seed)]

    def _scene(self, rate: float, seed: int) -> Scene:
        return Scene(rate, max(self.least_s, self.num_requests / rate), seed=seed)

    def _scenes(self, figure: int, seed: int) -> Iterator[Scene]:
        base = self._scene(self.rate, seed)
        match figure:
            case 9:
                yield replace(base, span_s=self.replaced_s)
            case 10:
                yield base
            case 11:
                yield from (replace(base, num_devices=num_devices) for num_devices in DEVICES)
            case 12:
                yield from (replace(base, in_a_row=count) for count in IN_A_ROW)
            case 13:
                yield from (replace(base, error=error) for error in ERRORS)
            case _:
                yield from (self._scene(rate, seed) for rate in self.rates)


def systems_of(figure: int, span: Range) -> tuple[System, ...]:
    """Return the systems of a figure; the others are compared with the first."""
    if figure == 9:
        return REPLACING
    others = ABLATIONS if figure == 8 else RIVALS
    return (OURS, *others, *(STRICT.get(figure, ()) if span.with_strict else ()))


def cells_of(figures: Sequence[int], span: Range) -> list[Cell]:
    """Return the runs of figures, each once, however many figures it is in."""
    wanted = (
        Cell(system.name, scene)
        for figure in figures
        for scene in span.scenes(figure)
        for system in systems_of(figure, span)
    )
    return list(dict.fromkeys(wanted))
