"""Works out what an engine saves by loading a prefix from its host's tiers, or by pulling it from another engine.

A gateway asks this of every engine for every decision. What engines tell of their costs seldom changes, and prefixes
end at few places. So answers are kept as long as the costs behind them.
"""

from typing import Final

from engines.costs.linear import prefill_s
from mesh.wire.control import ProcessState
from mesh.wire.status import EngineStatus, ServiceStatus

TIERS: Final = "/"  # begins what an index calls the tiers of a host: no engine has such a name
GIVING: Final = (ProcessState.READY, ProcessState.DRAINING)  # an engine that leaves has its KV until then
MOST_KEPT: Final = 256  # answers of an engine and a service
Span = tuple[int, int]  # where a part of a prompt ends and begins, in tokens


class PrefixSavings:
    """What one engine brings of prompts to a service, by its last status, and what that counts for."""

    def __init__(self, name: str, status: EngineStatus, before: "PrefixSavings | None" = None) -> None:
        """Make one. ``name``: of the service. ``before``: what was so by the engine's last status."""
        self.status = status
        self.service = next((service for service in status.services if service.name == name), None)
        self.tiers = tiers_of(status)
        self.loads = self.service is not None and self.service.tier_tokens > 0
        self.pulls = self.service is not None and self.service.pull_token_s > 0 and status.state in GIVING
        is_same = before is not None and _costs(before.service) == _costs(self.service)
        self._loaded: dict[Span, int] = before._loaded if before is not None and is_same else {}
        self._pulled: dict[Span, int] = before._pulled if before is not None and is_same else {}

    def __repr__(self) -> str:
        return f"<PrefixSavings of {self.tiers} loads={self.loads} pulls={self.pulls}>"

    def with_load(self, end: int, own: int) -> int:
        """Return how many tokens count as cached if the engine has ``own`` and loads those up to ``end``."""
        known = self._loaded.get((end, own))
        if known is None:
            assert self.service is not None, "who does not serve it loads nothing"
            known = _keep(self._loaded, end, own, self._worth(end, own, (end - own) * self.service.tier_token_s))
        return known

    def with_pull(self, end: int, own: int) -> int:
        """Return the same if it pulls them."""
        known = self._pulled.get((end, own))
        if known is None:
            assert self.service is not None, "who does not serve it pulls nothing"
            pull_s = self.service.pull_s + (end - own) * self.service.pull_token_s
            known = _keep(self._pulled, end, own, self._worth(end, own, pull_s))
        return known

    def _worth(self, end: int, own: int, seconds: float) -> int:
        """``own``, and the part of the others whose computing is saved if they come in so many seconds."""
        assert self.service is not None, "who does not serve it brings nothing"
        compute_s = prefill_s(self.service.prefill_cost, end - own, own)
        return own + int((end - own) * (max(0.0, 1.0 - seconds / compute_s) if compute_s else 0.0))


def _keep(kept: dict[Span, int], end: int, own: int, worth: int) -> int:
    if len(kept) >= MOST_KEPT:
        kept.clear()
    kept[end, own] = worth
    return worth


def tiers_of(status: EngineStatus) -> str:
    """Return how an index calls the tiers of an engine's host."""
    return f"{TIERS}{status.host}"


def _costs(service: ServiceStatus | None) -> object:
    if service is None:
        return None
    return service.tier_token_s, service.pull_s, service.pull_token_s, service.prefill_cost
