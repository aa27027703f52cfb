"""Finds out in a process of its own whether grammars can be followed, and remembers it.

A check compiles a grammar and works out its first mask (`engines.grammars`), one after the other for each model. A
known grammar costs nothing. Clients take turns with new ones, so that who sends one after the other delays another
client by one check at most. An engine that finds a grammar too dear later on says so: that is remembered, too.
"""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from engines.grammars.process import WALL_S, GrammarProcess, Vocabulary
from engines.grammars.protocol import Bad, Check, ChildLost
from router.api.errors import ApiError
from router.api.openai.input.grammars import Grammar, cannot_be_followed
from router.api.openai.input.turns import Line, LineLimits
from router.generation import Overloaded

MAX_KNOWN: Final = 4096  # grammars of one model
RETRY_AFTER_S: Final = 2.0
LIMITS: Final = LineLimits("new grammars", max_of_one=8, max_waiting=256, wait_s=10.0)

Digest = bytes


def digest(text: str) -> Digest:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class CheckedGrammar:
    """One that a request may ask for. `refuse` it when an engine found that it cannot be followed."""

    grammar: Grammar
    checks: "GrammarChecks"

    @property
    def text(self) -> str:
        return self.grammar.text

    def refuse(self, reason: str) -> ApiError:
        """Refuse the grammar from now on; the answer is for the client that has waited in vain."""
        self.checks.remember(self.grammar.text, reason)
        return cannot_be_followed(self.grammar, reason)


class GrammarChecks:
    """Checks the grammars of one model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._process = GrammarProcess(vocabulary)
        self._threads = ThreadPoolExecutor(1, "grammar")
        self._known: OrderedDict[Digest, str] = OrderedDict()  # why it cannot be followed; "": it can
        self._running: dict[Digest, asyncio.Task[str]] = {}
        self._line = Line(LIMITS)
        self._num_checks = 0

    def __repr__(self) -> str:
        return f"<GrammarChecks {len(self._known)} known, {len(self._running)} running, {self._process!r}>"

    async def check(self, grammar: Grammar, client: str) -> CheckedGrammar:
        """Raise `ApiError` (400) if it cannot be followed, `Overloaded` if ``client`` has too many checked."""
        name = digest(grammar.text)
        reason = self._known.get(name)
        if reason is None:
            task = self._running.get(name)
            if task is None:
                task = self._running[name] = asyncio.create_task(self._check(grammar.text, client))
                task.add_done_callback(lambda _: self._running.pop(name, None))
            reason = await asyncio.shield(task)
        else:
            self._known.move_to_end(name)
        if reason:
            raise cannot_be_followed(grammar, reason)
        return CheckedGrammar(grammar, self)

    def remember(self, text: str, reason: str) -> None:
        name = digest(text)
        self._known[name] = reason
        self._known.move_to_end(name)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._process.close()

    async def _check(self, text: str, client: str) -> str:
        """Why it cannot be followed; empty if it can."""
        async with self._line.turn(client):
            reason = await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, text)
        self.remember(text, reason)
        return reason

    def _ask(self, text: str) -> str:
        """In the thread. The process answers, or is ended, within its own limits."""
        self._num_checks += 1
        self._process.put(Check(self._num_checks, text))
        answer = self._process.receive(2 * WALL_S)
        if answer is None or isinstance(answer, ChildLost):
            raise Overloaded("grammars cannot be checked at the moment", RETRY_AFTER_S)
        return answer.reason if isinstance(answer, Bad) else ""
