"""How many random runs of each kind there are: some in every run of the suite, ten times as many at night."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])


def seeds(count: int) -> range:
    """``SEEDS`` in the environment is how many times as many are wanted."""
    return range(count * int(os.environ.get("SEEDS", "1")))


def is_night() -> bool:
    """Whether what takes long is to run, too."""
    return len(seeds(1)) > 1


def each_seed(count: int | range, most: int | None = None) -> Callable[[Test], Test]:
    """Calls a test with one ``seed`` after the other; ``SEED`` in the environment names one that runs alone.

    A number is how many seeds there are by day, and grows at night, to ``most`` at most. A range names the same seeds
    always: bounds of statistics hold for those that were tried. One test of many seeds costs much less than many tests.
    All seeds share its fixtures, which must not keep what one of them did.
    """

    def decorate(test: Callable[..., object]) -> Callable[..., object]:
        @wraps(test)
        def run(*args: object, **kwargs: object) -> None:
            for seed in _chosen(count, most):
                with _named(seed):
                    test(*args, seed=seed, **kwargs)

        @wraps(test)
        async def run_async(*args: object, **kwargs: object) -> None:
            for seed in _chosen(count, most):
                with _named(seed):
                    await test(*args, seed=seed, **kwargs)  # type: ignore[misc]

        chosen = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name != "seed"]
        vars(chosen)["__signature__"] = signature.replace(parameters=fixtures)
        return chosen

    return decorate  # type: ignore[return-value]


def _chosen(count: int | range, most: int | None) -> Iterable[int]:
    alone = os.environ.get("SEED")
    if alone is not None:
        return [int(alone)]
    return count if isinstance(count, range) else seeds(count)[:most]


@contextmanager
def _named(seed: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"with seed {seed}: SEED={seed} runs it alone")
        raise
