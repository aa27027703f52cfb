"""Progress of preparing one model, shown like that of all long work."""

from collections.abc import Iterator
from contextlib import contextmanager

from engines.models.progress import Progress
from mesh.show.progress import ShownProgress, working


@contextmanager
def reported(reference: str) -> Iterator[Progress]:
    """Show the steps of preparing the model, each one at once, and how far the longer ones are."""
    with working(reference) as shown:
        yield _Report(reference, shown)


class _Report:
    """A step is named by its words before those in brackets, which change while it goes on."""

    def __init__(self, reference: str, shown: ShownProgress) -> None:
        self._reference, self._shown, self._stage = reference, shown, ""

    def __call__(self, step: str, done: float | None = None) -> None:
        stage, _, more = step.partition(" (")
        if stage != self._stage:
            self._stage = stage
            self._shown.stage(f"{self._reference}: {stage}")
        self._shown.at(done, more.removesuffix(")"), total=None if done is None else 1.0)
