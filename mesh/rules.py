"""Rules that topologies name: for scaling, migration, placement and speculation, and for what promises count."""

from enum import StrEnum


class ScalingRule(StrEnum):
    """How many engines of a pool should run (docs/concepts/scaling.md)."""

    PROMISES = "promises"  # as few as keep TTFT and TPOT at the rates and lengths of now
    UTILISATION = "utilisation"  # so many that a share of their KV memory is in use
    FREENESS = "freeness"  # so many that mean freeness is between two bounds


class Trigger(StrEnum):
    """Why an engine gives a request to another one."""

    LOAD = "load"  # it is less free than the other: balance, room for a queued request, room for high priority
    ROLE = "role"  # it decodes on an engine that only prefills
    PROMISE = "promise"  # a promise would be broken here, its own or a neighbour's, and all are kept if it moves


class Lateness(StrEnum):
    """What becomes of a request whose first token does not come in time."""

    SERVE = "serve"  # it waits, and is answered late
    REJECT = "reject"  # it is refused, also by engines that have it, once its promise is over twice


class Counting(StrEnum):
    """Which tokens of an answer its TPOT promise counts."""

    COUNTED = "counted"  # all of them
    APART = "apart"  # those after the reasoning, with the token that ends it as the first one


class PlacementMode(StrEnum):
    """What the placement daemon does with a plan that is worth the change."""

    APPLY = "apply"
    SHADOW = "shadow"  # it says so, and changes nothing
    OFF = "off"  # plans are not searched for; the daemon only scales


class DraftMethod(StrEnum):
    """How tokens are drafted that one step checks (docs/guides/speculate.md)."""

    PROMPT_LOOKUP = "prompt_lookup"  # what followed the last tokens when they came before in the request
    DRAFT_MODEL = "draft_model"  # a smaller model writes them: another service of the same engines
