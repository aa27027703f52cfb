"""Predicts which engines hold the beginnings of which prompts in their prefix caches."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence

from router.history.records import PROMPT_BLOCK


class PrefixIndex:
    """Index of one service's prefixes. Learns from what this gateway dispatched. Prompts are named by the chained
    hashes of their blocks (`router.view.prompt_hashes`), so a block's name stands for all before it, too.

    Never more than likely: other gateways send, too, and what decodes takes memory. Of each engine the longest unused
    blocks are forgotten once its pool could not hold more. Engines that tell what they hold are not guessed about.
    """

    def __init__(self) -> None:
        self._telling: set[str] = set()  # engines
        self._holders: defaultdict[int, set[str]] = defaultdict(set)  # by block
        self._held: defaultdict[str, OrderedDict[int, None]] = defaultdict(OrderedDict)  # longest unused first

    def __repr__(self) -> str:
        return f"<PrefixIndex { ({engine: len(blocks) for engine, blocks in self._held.items()}) }>"

    def add(self, prefix: Sequence[int], engine: str, pool_tokens: int) -> None:
        """The engine will have computed or received it, into a pool of so many tokens. Its tail is forgotten first."""
        if engine in self._telling:
            return
        held = self._held[engine]
        for block in reversed(prefix):
            held[block] = None
            held.move_to_end(block)
            self._holders[block].add(engine)
        while len(held) > pool_tokens // PROMPT_BLOCK:
            self._drop(held.popitem(last=False)[0], engine)

    def tell(self, engine: str, kept: Iterable[int], gone: Iterable[int], *, cleared: bool) -> None:
        """The engine says which blocks it keeps now, and which it does not any more. ``cleared``: before that, all it
        had were gone.
        """
        if cleared or engine not in self._telling:
            self.forget(engine)
        self._telling.add(engine)
        held = self._held[engine]
        for block in gone:
            if block in held:
                del held[block]
                self._drop(block, engine)
        for block in kept:
            held[block] = None
            self._holders[block].add(engine)

    def cached_tokens(self, prefix: Sequence[int]) -> dict[str, int]:
        """Return how many of a prompt's first tokens each engine is likely to hold; engines without any are
        left out.
        """
        cached: dict[str, int] = {}
        holding: set[str] | None = None
        for index, block in enumerate(prefix):
            holders = self._holders.get(block, set())
            holding = holders if holding is None else holding & holders
            if not holding:
                break
            cached |= dict.fromkeys(holding, (index + 1) * PROMPT_BLOCK)
        return cached

    def forget(self, engine: str) -> None:
        """Forget an engine whose cache is gone, and that it told of it."""
        self._telling.discard(engine)
        for block in self._held.pop(engine, ()):
            self._drop(block, engine)

    def _drop(self, block: int, engine: str) -> None:
        self._holders[block].discard(engine)
        if not self._holders[block]:
            del self._holders[block]
