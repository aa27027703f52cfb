"""Books what each grammar takes to be followed, and what it forces."""

from collections import OrderedDict

from engines.scheduling.batch import Unsampled
from mesh.wire.requests import FailureCode

MAX_ACCOUNTS = 128  # grammars
NEW_S = 0.05  # what a mask of a grammar that is not known is expected to take
CPU_S_AT_FIRST = 1.0  # that a grammar may take, its compiling included
CPU_S_PER_MASK = 0.01  # in addition; usual ones take a tenth of it
CHEAP_S = 0.005  # drafts are followed of grammars whose masks took less on average
FORCED_AT_FIRST = 0.5  # tokens that a grammar is expected to force after each token, before anything is known
FORCED_KEPT = 0.98  # of what is known, with each token


class GrammarAccount:
    """What the masks of a grammar took. ``refusal``: why there are no more. ``num_forced``: mean of the tokens that it
    forces after a token of an answer.
    """

    __slots__ = ("cpu_s", "num_forced", "num_masks", "refusal")

    def __init__(self) -> None:
        self.num_masks = 0
        self.cpu_s = 0.0
        self.refusal: Unsampled | None = None
        self.num_forced = FORCED_AT_FIRST

    @property
    def expected_s(self) -> float:
        return (NEW_S + self.cpu_s) / (1 + self.num_masks)

    @property
    def is_cheap(self) -> bool:
        return self.cpu_s < CHEAP_S * self.num_masks

    def book(self, cpu_s: float, num_masks: int = 1) -> None:
        """Note what masks took. A grammar that stays dear is refused."""
        self.num_masks += num_masks
        self.cpu_s += cpu_s
        if self.cpu_s > CPU_S_AT_FIRST + CPU_S_PER_MASK * self.num_masks:
            self.refuse(f"the grammar cannot be followed: it takes more than {CPU_S_PER_MASK:g} s of CPU time a token")

    def book_forced(self, number: int) -> None:
        """Note how many tokens it forces after a token."""
        self.num_forced = FORCED_KEPT * self.num_forced + (1.0 - FORCED_KEPT) * number

    def refuse(self, reason: str) -> None:
        self.refusal = Unsampled(reason, FailureCode.GRAMMAR)


class GrammarAccounts:
    """The accounts of the grammars that were used last, by their texts."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, GrammarAccount] = OrderedDict()

    def of(self, grammar: str) -> GrammarAccount:
        """Return a grammar's account, which is new where none is known."""
        account = self._accounts.setdefault(grammar, GrammarAccount())
        self._accounts.move_to_end(grammar)
        while len(self._accounts) > MAX_ACCOUNTS:
            self._accounts.popitem(last=False)
        return account
