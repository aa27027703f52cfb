"""Prompts of known lengths that no cache has: token ids where the server takes them, else words."""

from random import Random

SMALLEST_ID, LARGEST_ID = 10, 250  # every vocabulary has them
WORDS = (
    "time",
    "year",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
)


def token_ids(random: Random, num_tokens: int) -> list[int]:
    return [random.randint(SMALLEST_ID, LARGEST_ID) for _ in range(num_tokens)]


def words(random: Random, num_tokens: int, tokens_per_word: float) -> str:
    """About so many tokens: the server counts them."""
    num_words = max(1, round(num_tokens / tokens_per_word))
    return " ".join(random.choices(WORDS, k=num_words))
