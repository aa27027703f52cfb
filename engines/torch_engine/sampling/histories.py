"""Counts which tokens a request has had, and how often: penalties ask at each draw, and contexts are long.

A request's list of tokens only grows, so what was counted of it stays, and a draw counts what is new.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from engines.scheduling.batch import Draw

LEAST_KEPT = 16  # requests; twice as many as the last batch drew for, if that is more
FEW = 4  # new tokens that are added one by one


class Tally:
    """Tokens, each once, and how often they were counted; those that are not in the vocabulary are left out."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.ids = torch.empty(0, dtype=torch.long, device=device)
        self.counts = torch.empty(0, dtype=torch.long, device=device)
        self._vocab_size = vocab_size
        self._counted: Counter[int] = Counter()
        self._places: dict[int, int] = {}

    def add(self, tokens: Sequence[int]) -> None:
        known = [token for token in tokens if 0 <= token < self._vocab_size]
        self._counted.update(known)
        if len(known) > FEW:
            self._places = {token: place for place, token in enumerate(self._counted)}
            self.ids = self.ids.new_tensor(list(self._counted))
            self.counts = self.counts.new_tensor(list(self._counted.values()))
            return
        for token in known:
            self._add(token)

    def plus(self, tokens: Sequence[int]) -> "Tally":
        """Return one that counts these, too. This one stays as it is."""
        if not tokens:
            return self
        other = Tally(self._vocab_size, self.ids.device)
        other.ids, other.counts = self.ids.clone(), self.counts.clone()
        other._counted, other._places = self._counted.copy(), self._places.copy()
        other.add(tokens)
        return other

    def _add(self, token: int) -> None:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self.ids):
            self.ids = torch.cat([self.ids, self.ids.new_tensor([token])])
            self.counts = torch.cat([self.counts, self.counts.new_zeros(1)])
        self.counts[place] += 1


class History:
    """Token counts of a request: ``seen`` are all its tokens, ``generated`` those of its answer."""

    def __init__(self, draw: Draw, vocab_size: int, device: torch.device) -> None:
        self.seen, self.generated = Tally(vocab_size, device), Tally(vocab_size, device)
        self._tokens = draw.tokens
        self._num_prompt = draw.num_prompt
        self._num_counted = 0

    def is_of(self, draw: Draw) -> bool:
        """The very list: another one may differ in what was counted, even of a request with the same name."""
        is_same = self._tokens is draw.tokens and self._num_prompt == draw.num_prompt
        return is_same and self._num_counted <= draw.position - len(draw.drafts)

    def count(self, position: int) -> None:
        """Count the tokens before ``position`` that are not counted yet."""
        self.seen.add(self._tokens[self._num_counted : position])
        self.generated.add(self._tokens[max(self._num_prompt, self._num_counted) : position])
        self._num_counted = position


class Histories:
    """Token counts of the requests that were sampled for of late."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, History] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, draw: Draw, row: Tensor) -> History:
        """Return the history up to the token that is to be sampled from ``row`` [vocabulary], but for drafts."""
        history = self._kept.pop(draw.request, None)
        if history is None or not history.is_of(draw):
            history = History(draw, len(row), row.device)
        history.count(draw.position - len(draw.drafts))
        self._kept[draw.request] = history
        return history

    def forget_beyond(self, num_draws: int) -> None:
        """After a batch that drew so many tokens, forget the histories that were not asked for lately."""
        while len(self._kept) > max(LEAST_KEPT, 2 * num_draws):
            self._kept.popitem(last=False)
