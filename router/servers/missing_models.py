"""Keeps which services a server cannot serve just now, since it does not know their models any more.

A server says so in two ways: it answers a call with 404 and names the model, or it lists its models without one that it
listed before. A name that it never listed may be an alias, which it may know all the same. A model is back when it is
listed. After a 404, a listing is believed again only after a pause, which grows each time. Some servers list what they
have given up, and of a name that is not listed only a new call can tell.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 60.0


@dataclass(slots=True)
class _Missing:
    reason: str
    until: float  # no listing before then brings it back


class MissingModels:
    """Keeps them for one server. ``names``: what it calls the model of each service."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._listed: set[str] = set()  # services whose models it ever listed
        self._has_listed = False  # any model
        self._missing: dict[str, _Missing] = {}
        self._num_denied: dict[str, int] = {}  # 404s of each service since it was last served

    def __repr__(self) -> str:
        return f"<MissingModels {[*self._missing]}>"

    def __len__(self) -> int:
        return len(self._missing)

    def reason(self, service: str) -> str | None:
        """Say why the server does not serve it; None: it does, as far as is known."""
        missing = self._missing.get(service)
        return None if missing is None else missing.reason

    def reasons(self) -> Iterable[tuple[str, str]]:
        return [(service, missing.reason) for service, missing in self._missing.items()]

    def denied(self, service: str, reason: str, now: float) -> None:
        """It answered a call with 404."""
        number = self._num_denied.get(service, 0)
        self._num_denied[service] = number + 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(number, 16), LAST_PAUSE_S)
        self._missing[service] = _Missing(f"the server does not know {self._names[service]!r}: {reason}", now + pause_s)

    def served(self, service: str) -> None:
        """It answers a call."""
        if self._num_denied:
            self._num_denied.pop(service, None)

    def listed(self, models: Collection[str], now: float) -> None:
        """It lists these models."""
        for service, name in self._names.items():
            missing = self._missing.get(service)
            if name in models:
                self._listed.add(service)
            if missing is not None:
                if now >= missing.until and (name in models or (models and service not in self._listed)):
                    del self._missing[service]
            elif name not in models and (service in self._listed or (self._has_listed and not models)):
                self._missing[service] = _Missing(f"the server lists no model {name!r} any more", now)
        self._has_listed = self._has_listed or bool(models)

    def clear(self) -> None:
        """It may be another server from now on."""
        self._listed.clear()
        self._has_listed = False
        self._missing.clear()
        self._num_denied.clear()
