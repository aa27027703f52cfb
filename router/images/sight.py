"""Finds out whether a service sees images, and why not."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engines.backend_rules import SEEING
from engines.images.form import FAMILIES, ImageForm
from mesh.extras import missing_extra

_WHO_SEES: Final = (
    f'services see images whose model is one of {", ".join(FAMILIES)} on engines with backend = "vllm", '
    'and those of servers behind backend = "openai" whose models do'
)


@dataclass(frozen=True, slots=True)
class Sight:
    """``form``: how a service sees images; None: it sees none, and ``why_not`` says what would."""

    form: ImageForm | None
    why_not: str = f"this service sees no images; {_WHO_SEES}"


BLIND: Final = Sight(None)


def sight_of(folder: Path, backends: Collection[str]) -> Sight:
    """Return the sight of a service. ``folder``: of its model; ``backends``: of its engines. Raise `ModelError` if the
    model's files contradict each other.
    """
    form = ImageForm.load(folder)
    if form is None or not backends or not set(backends) <= SEEING:
        return BLIND
    problem = missing_extra("to show images, the gateway", "images", "PIL")
    return Sight(None, problem) if problem else Sight(form)
