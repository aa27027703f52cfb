"""What a backend can be expected to do: the name of a feature, and which backends lack it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

FEATURES: dict[str, frozenset[str]] = {}

Test = Callable[..., Any]


def feature(name: str, lacks: tuple[str, ...] = ()) -> Callable[[Test], Test]:
    """A contract test shows it. Backends that lack it must fail it (the table in docs/guides/run-vllm.md)."""
    FEATURES[name] = frozenset(lacks)

    def mark(test: Test) -> Test:
        return pytest.mark.feature(name, frozenset(lacks))(test)

    return mark


def table(features: Mapping[str, frozenset[str]], backends: tuple[str, ...]) -> list[str]:
    """In Markdown."""
    lines = [f"| | {' | '.join(f'`{backend}`' for backend in backends)} |", "|---" * (len(backends) + 1) + "|"]
    for name, lacks in features.items():
        lines.append(f"| {name} | {' | '.join('no' if backend in lacks else 'yes' for backend in backends)} |")
    return lines
