"""Keeps what engines likely have of the prompts of each service, and what the KV tiers of their hosts have.

What an engine computed is likely in its prefix cache, and in the tiers of its host, from which every engine there can
load it. Engines may also pull it from each other. Policies go by seconds of computing. So what would be loaded or
pulled counts as cached for the part of computing that this saves, by the costs that engines tell.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mesh.wire.prefixes import PrefixesHeld
from mesh.wire.requests import PrefixAt
from router.view.monitor import Monitor
from router.view.prefix_news import PrefixNews
from router.view.prefix_savings import TIERS, PrefixSavings, tiers_of
from router.view.prefixes import PrefixIndex

Brought = Mapping[str, Sequence[int]]  # by engine, and by tiers of a host: prefixes that it lacked


class WarmTokens(NamedTuple):
    """Tokens of a prompt by engine. ``cached``: that count as cached; ``loadable``: beyond what the engine has, that it
    would load; ``pullable``: that it would rather pull, and from whom. Engines without any are left out.
    """

    cached: dict[str, int]
    loadable: dict[str, int]
    pullable: dict[str, PrefixAt]


# An engine that pulls and gives: tokens of a prompt that it can give, its name, those that its pool has, that count as
# cached, and what it brings.
_Pulling = tuple[int, str, int, int, PrefixSavings]


class KnownPrefixes:
    """What this gateway knows of prefix caches and tiers. ``names``: of a prompt's prefixes
    (`mesh.prefix_names`).
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._of: defaultdict[str, PrefixIndex] = defaultdict(PrefixIndex)  # by service
        self._savings: defaultdict[str, dict[str, PrefixSavings]] = defaultdict(dict)  # by service and engine
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
        found, pulling, known = WarmTokens({}, {}, {}), list[_Pulling](), self._savings[service]
        for engine, heard in statuses.items():
            savings = known.get(engine)
            if savings is None or savings.status is not heard.status:
                savings = known[engine] = PrefixSavings(service, heard.status, savings)
            own = held.get(engine, 0)
            end = max(own, held.get(savings.tiers, 0)) if savings.loads else own
            cached = own
            if end > own:
                found.loadable[engine] = end - own
                cached = savings.with_load(end, own)
            if cached:
                found.cached[engine] = cached
            if savings.pulls:
                pulling.append((end, engine, own, cached, savings))
        _add_pullable(found, pulling)
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
        told = () if heard is None else heard.status.services
        status = next((one for one in told if one.name == service), None)
        if heard is not None and status is not None:
            self._has_pulls = self._has_pulls or status.pull_token_s > 0
            yield engine, status.num_blocks * status.block_size
            if status.tier_tokens:
                yield tiers_of(heard.status), status.tier_tokens

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

        What it has now is soon in the tiers of its host, too, until it says that these have lost it.
        """
        if not self._news.follows(engine, news):
            return
        for of in news.services:
            index = self._of[of.service]
            index.hear(engine, of.kept, of.gone, is_all=news.is_all)
            for holder, num_tokens in self._holders(engine, of.service):
                if holder != engine:
                    index.lose(of.lost, holder)
                    index.add_steps(of.kept, holder, num_tokens)

    def forget(self, engine: str) -> None:
        """Forget an engine whose caches are gone. What its host has stays."""
        self._news.forget(engine)
        for prefixes in self._of.values():
            prefixes.forget(engine)
        for savings in self._savings.values():
            savings.pop(engine, None)


def _add_pullable(found: WarmTokens, pulling: Sequence[_Pulling]) -> None:
    """Let each engine know the one that can give most, where to pull from it saves more than to load."""
    most, engine_with_most = max([one[:2] for one in pulling if one[0]], default=(0, ""))
    at = PrefixAt(engine_with_most, most)
    for end, engine, own, cached, savings in pulling:
        if end < most and (with_pull := savings.with_pull(most, own)) > cached:
            found.cached[engine] = with_pull
            found.pullable[engine] = at
