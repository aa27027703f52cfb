"""Tells what a search for a topology found: a table, a picture of price against attainment, and the same as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Column, Table

from mesh.show.pages import Page, PageTable
from mesh.show.picture import Curves, Limit, Look, Picture, Series, Spot
from simulation.search.candidates import SearchCandidate
from simulation.search.evidence import Keeping
from simulation.search.halving import Halving, SearchEffort, layers

MOST_OPEN = 3  # candidates that a sentence each is for
HEADS = ("", "price", "devices", "kept", "in samples", "samples", "it", "topology")


@dataclass(frozen=True, slots=True)
class SearchReport:
    """A search that has ended."""

    candidates: Sequence[SearchCandidate]
    halving: Halving
    effort: SearchEffort

    @property
    def best(self) -> SearchCandidate | None:
        found = self.halving.best
        return None if found is None else self.candidates[found]

    @property
    def front(self) -> list[int]:
        """What nothing cheaper keeps more promises than, and all of the last round, by price."""
        tried = {one: found for one, found in enumerate(self.halving.tried) if found.results}
        points = {one: (self.candidates[one].price, -found.attainment) for one, found in tried.items()}
        undominated = next(iter(layers(points)), [])
        shown = {*undominated, *self.halving.keeping}
        return sorted(shown, key=lambda one: (self.candidates[one].price, -tried[one].attainment))

    def sentences(self) -> Iterator[str]:
        """Say the answer, how sure it is, and what it took."""
        best, effort, halving = self.halving.best, self.effort, self.halving
        goal = f"{100 * effort.goal:.4g}%"
        if best is None:
            most = max(halving.tried, key=lambda tried: tried.attainment if tried.results else 0.0)
            name = self.candidates[halving.tried.index(most)].words()
            keeps = "is sure to keep" if self.is_open else "keeps"
            yield f"none of {_topologies(len(self.candidates))} {keeps} {goal}; {name} kept {most.attainment:.1%}"
        else:
            own = self.candidates[best]
            yield f"cheapest that keeps {goal}: {own.words()}, at {own.price:g}"
            found = halving.tried[best]
            yield (
                f"it kept {found.attainment:.1%} on {len(found.results)} samples of {found.num_requests} requests; "
                f"confidence {100 * effort.confidence:.4g}%"
            )
        if equals := halving.equals:
            yield f"as good at that price, as far as samples tell: {'; '.join(self._name(one) for one in equals)}"
        cheaper = self._open_and_cheaper()
        for one in cheaper[:MOST_OPEN]:
            yield f"cheaper and not ruled out: {self._name(one)}, at {self.candidates[one].price:g}"
        if len(cheaper) > MOST_OPEN:
            yield f"{len(cheaper) - MOST_OPEN} more that are cheaper are not ruled out; the table has them as open"
        share = halving.num_simulated / (len(self.candidates) * effort.num_requests)
        yield (
            f"{halving.num_simulated} requests simulated for {_topologies(len(self.candidates))} in "
            f"{halving.cpu_s:.0f} s of CPU: {share:.3g} times what each of them on the whole recording takes"
        )

    @property
    def is_open(self) -> bool:
        """Is there one that samples do not tell from the goal?"""
        return Keeping.OPEN in self.halving.keeping.values()

    def _open_and_cheaper(self) -> list[int]:
        """The cheapest first."""
        best, candidates = self.best, self.candidates
        found = (one for one, keeping in self.halving.keeping.items() if keeping is Keeping.OPEN)
        cheaper = [one for one in found if best is None or candidates[one].price < best.price]
        return sorted(cheaper, key=lambda one: candidates[one].price)

    def _name(self, one: int) -> str:
        return self.candidates[one].words()

    def table(self) -> Table:
        """Return the front, for a terminal."""
        table = Table(*(Column(head, no_wrap=head != HEADS[-1]) for head in HEADS), box=None, pad_edge=False)
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> list[list[str]]:
        rows = []
        for one in self.front:
            candidate, tried = self.candidates[one], self.halving.tried[one]
            mark = "*" if one == self.halving.best else "=" if one in self.halving.equals else ""
            between = f"{min(tried.attainments):.0%} to {max(tried.attainments):.0%}"
            samples = f"{len(tried.results)} x {tried.num_requests}"
            figures = [f"{candidate.price:g}", f"{candidate.num_devices}", f"{tried.attainment:.1%}", between, samples]
            rows.append([mark, *figures, self._says(one), candidate.words()])
        return rows

    def _says(self, one: int) -> str:
        found = self.halving.keeping.get(one)
        return "was dropped" if found is None else "is open" if found is Keeping.OPEN else str(found)

    def for_programs(self) -> dict[str, Any]:
        """Return the same for JSON."""
        best = self.halving.best
        return {
            "goal": self.effort.goal,
            "confidence": self.effort.confidence,
            "best": None if best is None else self._row(best),
            "equals": [self._row(one) for one in self.halving.equals],
            "front": [self._row(one) for one in self.front],
            "candidates": len(self.candidates),
            "requests_simulated": self.halving.num_simulated,
            "cpu_s": self.halving.cpu_s,
        }

    def _row(self, one: int) -> dict[str, Any]:
        candidate, tried = self.candidates[one], self.halving.tried[one]
        engines = [
            {"profile": part.offer.name, "role": str(part.role), "count": part.count} for part in candidate.engines
        ]
        return {
            "price": candidate.price,
            "devices": candidate.num_devices,
            "engines": engines,
            "policy": candidate.policy_name,
            "chunk_tokens": candidate.chunk_tokens,
            "attainment": tried.attainment,
            "samples": tried.attainments,
            "requests_of_a_sample": tried.num_requests,
            "found": self._says(one),
        }

    def page(self, title: str) -> Page:
        """Return the picture of price against attainment, and the table."""
        sentences = list(self.sentences())
        table = PageTable("The front, and the last round", HEADS, self._rows())
        return Page(title, sentences[0], (self._picture(title),), tables=[table], notes=sentences[1:])

    def _picture(self, title: str) -> Picture:
        tried = [(one, found) for one, found in enumerate(self.halving.tried) if found.results]
        lengths = sorted({found.num_requests for _, found in tried})
        points = {
            f"samples of {length} requests": [
                (self.candidates[one].price, 100 * found.attainment)
                for one, found in tried
                if found.num_requests == length
            ]
            for length in lengths
        }
        curves = [
            Series(name, [x for x, _ in known], [y for _, y in known], look=Look.POINTS)
            for name, known in points.items()
        ]
        best = self.halving.best
        spots = []
        if best is not None:
            own = self.candidates[best]
            engines = " + ".join(part.words() for part in own.engines)
            spots = [Spot(own.price, 100 * self.halving.tried[best].attainment, engines)]
        goal = Limit(100 * self.effort.goal, f"goal: {self.effort.goal:.0%}", is_upright=False)
        panel = Curves("Requests that keep both promises", "price", "%", curves, [goal], spots, y_range=(0, 105))
        return Picture(title, (panel,))


def _topologies(number: int) -> str:
    return "1 topology" if number == 1 else f"{number} topologies"
