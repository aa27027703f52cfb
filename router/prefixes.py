"""Which engines are likely to hold the beginnings of which prompts in their prefix caches."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from router.records import PROMPT_BLOCK

KEPT_BLOCKS = 2**17  # of all engines: 64 million tokens


class PrefixIndex:
    """Learns from what this gateway dispatched and from what engines said they had found. Prompts are named by the
    chained hashes of their blocks (`router.prompt_hashes`), so a block's name stands for all before it, too.

    Never more than likely: engines evict, other gateways send, too. The longest unused block is forgotten first.
    """

    def __init__(self, kept_blocks: int = KEPT_BLOCKS) -> None:
        self._kept_blocks = kept_blocks
        self._holders: OrderedDict[int, set[str]] = OrderedDict()  # by block, longest unused first

    def __repr__(self) -> str:
        return f"<PrefixIndex of {len(self._holders)} blocks>"

    def add(self, prefix: Sequence[int], engines: Iterable[str]) -> None:
        """These engines will have computed or received it."""
        engines = tuple(engines)
        for block in prefix:
            self._holders.setdefault(block, set()).update(engines)
            self._holders.move_to_end(block)
        while len(self._holders) > self._kept_blocks:
            self._holders.popitem(last=False)

    def cached_tokens(self, prefix: Sequence[int]) -> dict[str, int]:
        """How many of a prompt's first tokens each engine is likely to hold; engines without any are left out."""
        cached: dict[str, int] = {}
        holding: set[str] | None = None
        for index, block in enumerate(prefix):
            holders = self._holders.get(block)
            if not holders:
                break
            holding = holders if holding is None else holding & holders
            if not holding:
                break
            cached |= dict.fromkeys(holding, (index + 1) * PROMPT_BLOCK)
        return cached

    def correct(self, prefix: Sequence[int], engine: str, num_cached_tokens: int) -> None:
        """The engine has found so much and no more: what followed is not there, or was not before this request."""
        for block in prefix[num_cached_tokens // PROMPT_BLOCK :]:
            if holders := self._holders.get(block):
                holders.discard(engine)

    def forget(self, engine: str) -> None:
        """Its cache is gone with it."""
        for holders in self._holders.values():
            holders.discard(engine)
