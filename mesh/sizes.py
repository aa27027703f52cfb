"""Sizes of memory in words, as messages say them."""

GIB, MIB = 2**30, 2**20


def in_words(num_bytes: int) -> str:
    """Small models have weights of some MiB, which are no "0.00 GiB"."""
    return f"{num_bytes / GIB:.2f} GiB" if num_bytes >= GIB / 10 else f"{num_bytes / MIB:.2f} MiB"
