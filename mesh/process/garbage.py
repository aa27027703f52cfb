"""Collections of garbage that do not hold up what streams."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 20_000  # containers more than before


@contextmanager
def importing() -> Iterator[None]:
    """Collect nothing while modules are imported, which stay, and never look at them: a tenth of a start's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def spare_what_is_loaded() -> None:
    """Call it when a process has loaded all that it stays with.

    Libraries leave some 200,000 objects, and a collection that looks at all of them holds every thread up for a tenth
    of a second. From now on none does. Requests leave hardly any cycles, but are remembered by the thousand: so
    collections are rare, too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
