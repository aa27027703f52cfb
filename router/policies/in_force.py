"""Keeps which policy a gateway runs: the topology's, until somebody chooses another one for the whole mesh.

Every choice has a version above those that its author had heard of, and gateways tell theirs in each status. Version 0
is the topology's policy and is nobody else's, so that a changed topology can be rolled out gateway by gateway. Of two
other choices each gateway takes the later one: the higher version, among equals the greater name, then parameters. So
all come to run the same one, whoever missed the message or started after it.
"""

from random import Random

import msgspec

from mesh.topology.schema import PolicySpec
from mesh.wire.control import PolicyChoice
from router.policies.policy import Policy
from router.policies.registry import make_policy, with_defaults


class PolicyInForce:
    """Keeps the policy of a gateway. ``policy`` decides; ``choice`` says which one it is. Raises `UserError` for a
    policy that does not exist.
    """

    def __init__(self, spec: PolicySpec, random: Random, now: float) -> None:
        self._random = random
        self._taken_at = now
        self.policy: Policy = make_policy(spec, random)
        self.choice = PolicyChoice(spec.name, dict(with_defaults(spec).parameters))

    def __repr__(self) -> str:
        return f"<PolicyInForce {self.choice}>"

    def age_s(self, now: float) -> float:
        """Return the seconds since this gateway took it."""
        return now - self._taken_at

    def is_later(self, choice: PolicyChoice) -> bool:
        return choice.version > 0 and _order(choice) > _order(self.choice)

    def take(self, choice: PolicyChoice, now: float) -> None:
        """Raise `UserError` if there is no such policy; then the old one stays."""
        spec = PolicySpec(choice.name, choice.parameters)
        self.policy, self.choice, self._taken_at = make_policy(spec, self._random), choice, now


def _order(choice: PolicyChoice) -> tuple[int, str, bytes]:
    return choice.version, choice.name, msgspec.json.encode(choice.parameters, order="sorted")
