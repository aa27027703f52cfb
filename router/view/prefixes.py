"""Predicts which engines hold the beginnings of which prompts in their prefix caches."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mesh.prefix_names import LONG_STEP, prefix_end


@dataclass(slots=True)
class LikelyPrefixes:
    """What one engine likely holds: prefixes by name, longest unused first, each with the tokens that it has beyond the
    next shorter one. Those that the engine told of, in ``told`` or with no tokens, are its own to bound.
    """

    tokens: OrderedDict[int, int] = field(default_factory=OrderedDict)
    num_tokens: int = 0
    told: set[int] = field(default_factory=set)

    def __contains__(self, name: int) -> bool:
        return name in self.told or name in self.tokens

    def use(self, name: int, tokens: int) -> None:
        self.remove(name)
        self.tokens[name] = tokens
        self.num_tokens += tokens

    def remove(self, name: int) -> bool:
        """Return whether it was there."""
        tokens = self.tokens.pop(name, None)
        self.num_tokens -= tokens or 0
        return tokens is not None

    def longest_unused(self) -> int:
        return next(iter(self.tokens))


class PrefixIndex:
    """Index of one service's prefixes. Learns from what this gateway dispatched. Prefixes have names that are chained
    (`mesh.prefix_names`): two prompts share one exactly if they begin alike up to its end.

    Never more than likely: other gateways send, too, and what decodes takes memory. Of each engine the longest unused
    prefixes are forgotten once its pool could not hold more. Servers that tell what they hold are not guessed about.
    Engines tell, too, but only when a request has ended: until then, and where they do not, they are guessed about.
    """

    def __init__(self) -> None:
        self._telling: set[str] = set()  # engines
        self._holders: defaultdict[int, set[str]] = defaultdict(set)  # by prefix
        self._held: defaultdict[str, LikelyPrefixes] = defaultdict(LikelyPrefixes)

    def __repr__(self) -> str:
        return f"<PrefixIndex { ({engine: len(held.tokens) for engine, held in self._held.items()}) }>"

    def add(self, names: Sequence[int], engine: str, pool_tokens: int) -> Sequence[int]:
        """The engine will have computed or received it, into a pool of so many tokens. Its tail is forgotten first.

        Return the names that are new there: what `take_back` undoes.
        """
        if engine in self._telling:
            return ()
        held = self._held[engine]
        new = [name for name in names if name not in held]
        for index in reversed([index for index, name in enumerate(names) if name not in held.told]):
            held.use(names[index], prefix_end(index) - (prefix_end(index - 1) if index else 0))
            self._holders[names[index]].add(engine)
        self._fit(engine, pool_tokens)
        return new

    def add_steps(self, names: Sequence[int], engine: str, pool_tokens: int) -> None:
        """Do as `add`, for prefixes of one prompt or several whose lengths are not known: those that are new count a
        long step each.
        """
        held = self._held[engine]
        for name in reversed([name for name in names if name not in held]):
            held.use(name, LONG_STEP)
            self._holders[name].add(engine)
        self._fit(engine, pool_tokens)

    def _fit(self, engine: str, pool_tokens: int) -> None:
        """Forget the longest unused guesses until the others fit into so many tokens."""
        held = self._held[engine]
        while held.num_tokens > pool_tokens:
            self._drop_guess(held.longest_unused(), engine)

    def take_back(self, names: Iterable[int], engine: str) -> None:
        """The engine refused what would have brought these there."""
        if engine not in self._telling:
            for name in names:
                self._drop_guess(name, engine)

    def tell(self, engine: str, kept: Iterable[int], gone: Iterable[int], *, cleared: bool) -> None:
        """The engine says which prefixes it keeps now, and which it does not any more. ``cleared``: before that, all
        it had were gone.
        """
        if cleared or engine not in self._telling:
            self.forget(engine)
        self._telling.add(engine)
        for name in gone:
            self._drop_guess(name, engine)
        for name in kept:
            self._held[engine].use(name, 0)
            self._holders[name].add(engine)

    def hear(self, engine: str, kept: Iterable[int], gone: Iterable[int], *, is_all: bool) -> None:
        """An engine says which prefixes it holds, and which it gave up. ``is_all``: it holds no others."""
        held = self._held[engine]
        for name in [*held.told] if is_all else []:
            held.told.discard(name)
            self._forget_if_lost(name, engine)
        for name in gone:
            held.told.discard(name)
            self._drop_guess(name, engine)
        for name in kept:
            held.remove(name)
            held.told.add(name)
            self._holders[name].add(engine)

    def lose(self, names: Iterable[int], holder: str) -> None:
        """What was guessed of these is wrong."""
        for name in names:
            self._drop_guess(name, holder)

    def cached_tokens(self, names: Sequence[int]) -> dict[str, int]:
        """Return how many of a prompt's first tokens each engine is likely to hold; engines without any are
        left out.
        """
        cached: dict[str, int] = {}
        holding: set[str] | None = None
        for index, name in enumerate(names):
            holders = self._holders.get(name, set())
            holding = holders if holding is None else holding & holders
            if not holding:
                break
            cached |= dict.fromkeys(holding, prefix_end(index))
        return cached

    def forget(self, engine: str) -> None:
        """Forget an engine whose cache is gone, and that it told of it."""
        self._telling.discard(engine)
        held = self._held.pop(engine, LikelyPrefixes())
        for name in [*held.tokens, *held.told]:
            self._forget_if_lost(name, engine)

    def _drop_guess(self, name: int, engine: str) -> None:
        self._held[engine].remove(name)
        self._forget_if_lost(name, engine)

    def _forget_if_lost(self, name: int, engine: str) -> None:
        """The engine does not hold it, unless it is still said or guessed to."""
        if engine in self._held and name in self._held[engine]:
            return
        holders = self._holders.get(name)
        if holders is not None:
            holders.discard(engine)
            if not holders:
                del self._holders[name]
