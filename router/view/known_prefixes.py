"""Keeps what engines likely have of the prompts of each service."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from router.view.monitor import Monitor
from router.view.prefixes import PrefixIndex

Brought = Mapping[str, Sequence[int]]  # by engine, prefixes that it lacked


class KnownPrefixes:
    """What this gateway knows of the engines' prefix caches. ``names``: of a prompt's prefixes
    (`router.view.prompt_hashes`).
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._of: defaultdict[str, PrefixIndex] = defaultdict(PrefixIndex)  # by service

    def __repr__(self) -> str:
        return f"<KnownPrefixes of {list(self._of)}>"

    def cached(self, service: str, names: Sequence[int]) -> dict[str, int]:
        """Return how many tokens of the prompt each engine is likely to hold."""
        return self._of[service].cached_tokens(names)

    def sent(self, service: str, names: Sequence[int], engines: Iterable[str]) -> Brought:
        """These engines will have the prompt. Return what they lacked of it: `refused` takes that back."""
        if not names:
            return {}
        view, index = self._monitor.view().engines, self._of[service]
        return {engine: index.add(names, engine, view[engine].services[service].num_slots) for engine in engines}

    def refused(self, service: str, brought: Brought) -> None:
        """The engines will not have it, after all."""
        for engine, names in brought.items():
            self._of[service].take_back(names, engine)

    def tell(self, engine: str, service: str, kept: Iterable[int], gone: Iterable[int], *, cleared: bool) -> None:
        """An engine says which prefixes of a service it keeps (`PrefixIndex.tell`)."""
        self._of[service].tell(engine, kept, gone, cleared=cleared)

    def forget(self, engine: str) -> None:
        """Forget an engine whose caches are gone."""
        for prefixes in self._of.values():
            prefixes.forget(engine)
