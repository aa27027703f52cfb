"""Keeps what engines likely have of the prompts of each service, and what the KV tiers of their hosts have.

What an engine computed is likely in its prefix cache, and in the tiers of its host, from which every engine there can
load it. Policies go by seconds of computing. So what would be loaded counts as cached for the part of computing that
loading it saves, by the costs that engines tell.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engines.costs.linear import prefill_s
from mesh.wire.status import EngineStatus, ServiceStatus
from router.view.monitor import Monitor
from router.view.prefixes import PrefixIndex

TIERS = "/"  # begins what an index calls the tiers of a host: no engine has such a name
Brought = Mapping[str, Sequence[int]]  # by engine, and by tiers of a host: prefixes that it lacked


class WarmTokens(NamedTuple):
    """Tokens of a prompt by engine. ``cached``: that count as cached; ``loadable``: beyond what the engine has, that it
    would load. Engines without any are left out.
    """

    cached: dict[str, int]
    loadable: dict[str, int]


class KnownPrefixes:
    """What this gateway knows of prefix caches and tiers. ``names``: of a prompt's prefixes
    (`router.view.prompt_hashes`).
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._of: defaultdict[str, PrefixIndex] = defaultdict(PrefixIndex)  # by service

    def __repr__(self) -> str:
        return f"<KnownPrefixes of {list(self._of)}>"

    def warm(self, service: str, names: Sequence[int]) -> WarmTokens:
        """Return what engines need not compute of a prompt with these prefixes."""
        held, statuses = self._of[service].cached_tokens(names), self._monitor.statuses
        if not any(holder.startswith(TIERS) for holder in held):
            return WarmTokens({engine: num_tokens for engine, num_tokens in held.items() if engine in statuses}, {})
        found = WarmTokens({}, {})
        for engine, heard in statuses.items():
            own, status = held.get(engine, 0), _of_service(heard.status, service)
            loadable = held.get(_tiers_of(heard.status), 0) - own if status is not None and status.tier_tokens else 0
            if status is not None and loadable > 0:
                found.loadable[engine] = loadable
                own += int(loadable * _saved(status, loadable, own))
            if own:
                found.cached[engine] = own
        return found

    def sent(self, service: str, names: Sequence[int], engines: Iterable[str]) -> Brought:
        """These engines will have the prompt. Return what they lacked of it: `refused` takes that back."""
        if not names:
            return {}
        room = dict(holder for engine in engines for holder in self._holders(engine, service))
        return {holder: self._of[service].add(names, holder, num_tokens) for holder, num_tokens in room.items()}

    def _holders(self, engine: str, service: str) -> Iterator[tuple[str, int]]:
        """The engine and the tiers of its host, and how many tokens each can hold."""
        heard = self._monitor.statuses.get(engine)
        status = None if heard is None else _of_service(heard.status, service)
        if heard is not None and status is not None:
            yield engine, status.num_blocks * status.block_size
            if status.tier_tokens:
                yield _tiers_of(heard.status), status.tier_tokens

    def refused(self, service: str, brought: Brought) -> None:
        """The engines will not have it, after all."""
        for engine, names in brought.items():
            self._of[service].take_back(names, engine)

    def tell(self, engine: str, service: str, kept: Iterable[int], gone: Iterable[int], *, cleared: bool) -> None:
        """An engine says which prefixes of a service it keeps (`PrefixIndex.tell`)."""
        self._of[service].tell(engine, kept, gone, cleared=cleared)

    def forget(self, engine: str) -> None:
        """Forget an engine whose caches are gone. What its host has stays."""
        for prefixes in self._of.values():
            prefixes.forget(engine)


def _saved(status: ServiceStatus, num_tokens: int, num_before: int) -> float:
    """The part of computing these tokens that loading them saves."""
    compute_s = prefill_s(status.prefill_cost, num_tokens, num_before)
    return max(0.0, 1.0 - num_tokens * status.tier_token_s / compute_s) if compute_s else 0.0


def _of_service(status: EngineStatus, name: str) -> ServiceStatus | None:
    return next((service for service in status.services if service.name == name), None)


def _tiers_of(status: EngineStatus) -> str:
    """How an index calls the tiers of an engine's host."""
    return f"{TIERS}{status.host}"
