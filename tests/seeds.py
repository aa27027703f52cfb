"""How many random runs of each kind there are: some in every run of the suite, ten times as many at night."""

import os


def seeds(count: int, most: int | None = None) -> range:
    """``SEEDS`` in the environment is how many times as many are wanted; ``most``: what is asserted was tried of."""
    wanted = count * int(os.environ.get("SEEDS", "1"))
    return range(wanted if most is None else min(wanted, most))
