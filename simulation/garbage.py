"""Sets how often what runs leave behind in cycles is looked for."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_collections() -> Iterator[None]:
    """A run makes few cycles and keeps many objects: looking for the former among the latter takes a tenth of it."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def leaving_nothing_behind() -> Iterator[None]:
    """Free at the end what is made inside and not kept, though in cycles. Nothing older is looked at."""
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
