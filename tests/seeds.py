"""How many random runs of each kind there are: some in every run of the suite, ten times as many at night."""

import os


def seeds(count: int) -> range:
    """``SEEDS`` in the environment is how many times as many are wanted."""
    return range(count * int(os.environ.get("SEEDS", "1")))
