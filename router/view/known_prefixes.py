"""Keeps what engines likely have of the prompts of each service, and what the KV tiers of their hosts have.

What an engine computed is likely in its prefix cache, and in the tiers of its host, from which every engine there can
load it. Engines may also pull it from each other. Policies go by seconds of computing. So what would be loaded or
pulled counts as cached for the part of computing that this saves, by the costs that engines tell.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from engines.costs.linear import prefill_s
from mesh.wire.control import ProcessState
from mesh.wire.prefixes import PrefixesHeld
from mesh.wire.requests import PrefixAt
from mesh.wire.status import EngineStatus, ServiceStatus
from router.view.monitor import Monitor
from router.view.prefix_news import PrefixNews
from router.view.prefixes import PrefixIndex

TIERS = "/"  # begins what an index calls the tiers of a host: no engine has such a name
GIVING = ProcessState.READY, ProcessState.DRAINING  # an engine that leaves has its KV until then
Brought = Mapping[str, Sequence[int]]  # by engine, and by tiers of a host: prefixes that it lacked


class WarmTokens(NamedTuple):
    """Tokens of a prompt by engine. ``cached``: that count as cached; ``loadable``: beyond what the engine has, that it
    would load; ``pullable``: that it would rather pull, and from whom. Engines without any are left out.
    """

    cached: dict[str, int]
    loadable: dict[str, int]
    pullable: dict[str, PrefixAt]


class _Peer(NamedTuple):
    """An engine that pulls and gives. Tokens of a prompt: that it can give, that its pool has, that count as cached."""

    num_tokens: int
    engine: str
    own: int
    cached: int
    status: ServiceStatus


class KnownPrefixes:
    """What this gateway knows of prefix caches and tiers. ``names``: of a prompt's prefixes
    (`mesh.prefix_names`).
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._of: defaultdict[str, PrefixIndex] = defaultdict(PrefixIndex)  # by service
        self._news = PrefixNews()
        self._has_pulls = False  # engines that were sent prompts pull prefixes

    def __repr__(self) -> str:
        return f"<KnownPrefixes of {list(self._of)}>"

    def warm(self, service: str, names: Sequence[int]) -> WarmTokens:
        """Return what engines need not compute of a prompt with these prefixes."""
        held, statuses = self._of[service].cached_tokens(names), self._monitor.statuses
        if not held:
            return WarmTokens({}, {}, {})
        if not self._has_pulls and not any(holder.startswith(TIERS) for holder in held):
            return WarmTokens({engine: num_tokens for engine, num_tokens in held.items() if engine in statuses}, {}, {})
        found, peers = WarmTokens({}, {}, {}), list[_Peer]()
        for engine, heard in statuses.items():
            own, status = held.get(engine, 0), _of_service(heard.status, service)
            if status is None:
                if own:
                    found.cached[engine] = own
                continue
            loadable = max(0, held.get(_tiers_of(heard.status), 0) - own) if status.tier_tokens else 0
            cached = own
            if loadable:
                found.loadable[engine] = loadable
                cached += int(loadable * _saved(status, loadable * status.tier_token_s, loadable, own))
            if cached:
                found.cached[engine] = cached
            if status.pull_token_s and heard.status.state in GIVING:
                peers.append(_Peer(own + loadable, engine, own, cached, status))
        _add_pullable(found, peers)
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
            self._has_pulls = self._has_pulls or status.pull_token_s > 0
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

    def must_ask(self, engine: str, number: int) -> bool:
        """Return whether to ask an engine for the prefixes that it holds, as its status tells of news that are missing
        here.
        """
        return self._news.must_ask(engine, number)

    def hear(self, engine: str, news: PrefixesHeld) -> None:
        """An engine says which prefixes came and went. What follows a gap is left out: the engine will be asked.

        What it has now is soon in the tiers of its host, too.
        """
        if not self._news.follows(engine, news):
            return
        for of in news.services:
            index = self._of[of.service]
            index.hear(engine, of.kept, of.gone, is_all=news.is_all)
            for holder, num_tokens in self._holders(engine, of.service):
                if holder != engine:
                    index.add_steps(of.kept, holder, num_tokens)

    def forget(self, engine: str) -> None:
        """Forget an engine whose caches are gone. What its host has stays."""
        self._news.forget(engine)
        for prefixes in self._of.values():
            prefixes.forget(engine)


def _add_pullable(found: WarmTokens, peers: Sequence[_Peer]) -> None:
    """Let each engine know the one that can give most, where to pull from it saves more than to load."""
    most = nlargest(2, peers)
    for num_tokens, engine, own, cached, status in peers:
        best = most[-1] if most[0].engine == engine else most[0]
        if best.num_tokens <= num_tokens:
            continue
        num_new = best.num_tokens - own
        pull_s = status.pull_s + num_new * status.pull_token_s
        with_pull = own + int(num_new * _saved(status, pull_s, num_new, own))
        if with_pull > cached:
            found.cached[engine] = with_pull
            found.pullable[engine] = PrefixAt(best.engine, best.num_tokens)


def _saved(status: ServiceStatus, load_s: float, num_tokens: int, num_before: int) -> float:
    """The part of computing these tokens that is saved if they come in ``load_s``."""
    compute_s = prefill_s(status.prefill_cost, num_tokens, num_before)
    return max(0.0, 1.0 - load_s / compute_s) if compute_s else 0.0


def _of_service(status: EngineStatus, name: str) -> ServiceStatus | None:
    return next((service for service in status.services if service.name == name), None)


def _tiers_of(status: EngineStatus) -> str:
    """How an index calls the tiers of an engine's host."""
    return f"{TIERS}{status.host}"
