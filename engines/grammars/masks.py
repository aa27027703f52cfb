"""Gets the tokens that grammars allow next: asked for when a step begins, taken when its logits are there.

The tokens so far are known before a step is computed, so the grammar process works beside it, and mostly costs no time.
Of a decode with drafts there are masks after each draft, as far as the grammar allows them: what follows one that it
forbids is of no use to anybody. A mask that is late does not hold the batch for longer than ``patience_s``: its
request's last token is computed again. Masks of cheap grammars come first, and one that stays dear fails, with all
requests that ask for it.

Where drafts are wanted, masks are asked for as soon as a token is sampled, with the tokens that the grammar forces
next: these are the next step's drafts.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from engines.grammars.accounts import GrammarAccounts
from engines.grammars.process import WALL_S, GrammarProcess, Vocabulary, jobs_of
from engines.grammars.protocol import TOKENS_PER_JOB, Answer, Bad, ChildLost, Mask, Sound, Unknown
from engines.scheduling.batch import Draw, Unsampled
from mesh.wire.requests import FailureCode

MAX_REMEMBERED = 512  # requests
BRIEFLY_S = 0.02  # where a token may be sampled later
FORCED_S = 0.002  # at most, that a step waits for what grammars force next
LEAST_FORCED_S = 0.0002  # in less nothing is answered
FORCED_SHARE = 0.5  # of the time that forced tokens are expected to save, which waiting for them may take
LATE = Unsampled()

Allowed = NDArray[np.bool_] | Unsampled


class AnswerSoFar(NamedTuple):
    """The tokens of a request's answer, the last of which was just sampled."""

    request: str
    grammar: str
    tokens: list[int]


@dataclass(slots=True)
class _Asked:
    """A mask that is being worked out. ``job``: the one that is answered."""

    grammar: str
    tokens: list[int]
    job: int
    drafts: Sequence[int] = ()
    num_forced: int = 0
    was_waited_for: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """The masks of a request, as bits: that after its ``tokens``, and after each of the ``drafts``; or why there are
    none.
    """

    tokens: list[int]
    masks: Sequence[bytes] | Unsampled
    drafts: Sequence[int] = ()

    def after(self, drafts: Sequence[int]) -> bytes | Unsampled:
        """Return the mask after these drafts; late, if they were not followed."""
        place = len(drafts)
        if isinstance(self.masks, Unsampled):
            return self.masks
        is_known = place < len(self.masks) and _begins_with(self.drafts, drafts)
        return self.masks[place] if is_known else LATE


class Masks:
    """Token masks of one model. ``patience_s``: how long a step may wait for the masks that it asked for."""

    def __init__(self, vocabulary: Vocabulary, patience_s: float = WALL_S) -> None:
        self._size = vocabulary.size
        self._process = GrammarProcess(vocabulary)
        self._patience_s = patience_s
        self._num_jobs = 0
        self._asked: dict[str, _Asked] = {}  # by request
        self._told: OrderedDict[str, _Asked] = OrderedDict()  # what the grammar process last heard of each request
        self._ready: OrderedDict[str, _Found] = OrderedDict()
        self._accounts = GrammarAccounts()

    def __repr__(self) -> str:
        return f"<Masks asked={len(self._asked)} {self._process!r}>"

    def ask(self, draws: Sequence[Draw]) -> None:
        """Have the masks of a step worked out. Whoever was asked for already is not asked for again."""
        furthest = {draw.request: draw for draw in draws if draw.sampling.grammar}  # drafts come in order
        for draw in furthest.values():
            tokens = list(draw.generated)
            known = (self._asked.get(draw.request), self._ready.get(draw.request))
            drafts = draw.drafts if self._accounts.of(draw.sampling.grammar).is_cheap else ()
            if not any(one and one.tokens == tokens and _begins_with(one.drafts, drafts) for one in known):
                self._put(draw.request, draw.sampling.grammar, tokens, drafts)

    def take(self, draws: Sequence[Draw]) -> Sequence[Allowed | None]:
        """Return the tokens that each draw with a grammar may come to, [vocabulary], or why there are none. None: it
        has no grammar.
        """
        wanted = list(dict.fromkeys([draw.request for draw in draws if draw.sampling.grammar]))
        if not wanted:
            return [None] * len(draws)
        self.ask(draws)
        self._listen(wanted)
        found = {request: self._ready.pop(request, _Found([], LATE)) for request in wanted}
        return [
            self._allowed(found[draw.request].after(draw.drafts)) if draw.sampling.grammar else None for draw in draws
        ]

    def forced(
        self, answers: Sequence[AnswerSoFar], most: int, step_s: float, num_decodes: int
    ) -> Sequence[Sequence[int]]:
        """Return at most ``most`` tokens that the grammar of each answer forces next, as far as they are known soon.

        A step of ``num_decodes``, which takes ``step_s``, is waited with for less than forced tokens save. The masks of
        the next step are worked out meanwhile.
        """
        expected = 0.0
        for one in answers:
            account = self._accounts.of(one.grammar)
            expected += account.num_forced
            self._put(one.request, one.grammar, one.tokens, num_forced=most if account.is_cheap else 0)
        patience_s = min(FORCED_S, FORCED_SHARE * step_s * expected / num_decodes)
        wanted = [one.request for one in answers]
        self._hear_until(time.monotonic() + (patience_s if patience_s > LEAST_FORCED_S else 0.0), wanted)
        return [self._forced_after(one) for one in answers]

    def _forced_after(self, answer: AnswerSoFar) -> Sequence[int]:
        """Those after which there are masks: a draft without one would be of no use."""
        found = self._ready.get(answer.request)
        if found is None or found.tokens != answer.tokens or isinstance(found.masks, Unsampled):
            return ()
        return found.drafts[: len(found.masks) - 1]

    def close(self) -> None:
        self._process.close()

    def _allowed(self, found: bytes | Unsampled) -> Allowed:
        if isinstance(found, Unsampled):
            return found
        return np.unpackbits(np.frombuffer(found, np.uint8), count=self._size, bitorder="little").view(np.bool_)

    def _listen(self, wanted: Sequence[str]) -> None:
        """Until all is there, or patience is over. Nobody is waited for in two steps."""
        asked = [self._asked[request] for request in wanted if request in self._asked]
        is_new = any(not one.was_waited_for for one in asked)
        for one in asked:
            one.was_waited_for = True
        self._hear_until(time.monotonic() + (self._patience_s if is_new else 0.0), wanted)

    def _hear_until(self, deadline: float, wanted: Sequence[str]) -> None:
        while any(request in self._asked for request in wanted):
            answer = self._process.receive(max(0.0, deadline - time.monotonic()))
            if answer is None:
                return
            self._hear(answer)

    def _put(
        self, request: str, grammar: str, tokens: list[int], drafts: Sequence[int] = (), num_forced: int = 0
    ) -> None:
        self._ready.pop(request, None)
        if (before := self._asked.pop(request, None)) is not None:
            self._process.drop(before.job)
            self._told.pop(request, None)
        account = self._accounts.of(grammar)
        if account.refusal is not None:
            self._keep(request, _Found(tokens, account.refusal))
            return
        told = self._told.pop(request, None)
        goes_on = told is not None and told.grammar == grammar and told.tokens == tokens[: len(told.tokens)]
        start = len(told.tokens) if told is not None and goes_on else 0
        expected_s = account.expected_s
        jobs = jobs_of(self._num_jobs, request, grammar, tokens, start, TOKENS_PER_JOB, expected_s)
        jobs[-1] = msgspec.structs.replace(jobs[-1], drafts=list(drafts), num_forced=num_forced)
        self._num_jobs += len(jobs)
        self._asked[request] = self._told[request] = _Asked(grammar, tokens, jobs[-1].job, drafts, num_forced)
        while len(self._told) > MAX_REMEMBERED:
            self._told.popitem(last=False)
        for job in jobs:
            self._process.put(job)

    def _hear(self, answer: Answer) -> None:
        found = next((item for item in self._asked.items() if item[1].job == answer.job), None)
        if found is None:
            return  # its request went on otherwise
        request, asked = found
        del self._asked[request]
        match answer:
            case Mask(_, bits, cpu_s, further, forced):
                account = self._accounts.of(asked.grammar)
                account.book(cpu_s, 1 + len(further))
                if asked.num_forced:
                    account.book_forced(len(forced))
                self._keep(request, _Found(asked.tokens, [bits, *further], forced or asked.drafts))
            case Bad(_, reason, is_dear):
                self._told.pop(request, None)
                self._keep(request, _Found(asked.tokens, Unsampled(reason, FailureCode.GRAMMAR)))
                if is_dear:
                    self._refuse(asked.grammar, reason)
            case ChildLost():
                self._told.pop(request, None)
                gone = Unsampled("the process that follows grammars is gone", FailureCode.STEP)
                self._keep(request, _Found(asked.tokens, gone))
            case Unknown():
                self._told.pop(request, None)
                self._put(request, asked.grammar, asked.tokens, asked.drafts, asked.num_forced)
            case Sound():
                raise RuntimeError("a grammar process checked what it was to follow")

    def _refuse(self, grammar: str, reason: str) -> None:
        """Whoever else waits for a mask of this grammar does not wait for the process to die of it again."""
        account = self._accounts.of(grammar)
        account.refuse(reason)
        for request, asked in [item for item in self._asked.items() if item[1].grammar == grammar]:
            self._put(request, grammar, asked.tokens)

    def _keep(self, request: str, found: _Found) -> None:
        self._ready[request] = found
        while len(self._ready) > MAX_REMEMBERED:
            self._ready.popitem(last=False)


def _begins_with(drafts: Sequence[int], wanted: Sequence[int]) -> bool:
    return list(drafts[: len(wanted)]) == list(wanted)
