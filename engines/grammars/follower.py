"""The part of a grammar process that runs llguidance: compiles grammars once, and follows requests token by token."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engines.grammars.errors import GrammarError, reason_of
from engines.grammars.protocol import MAX_PACKET_BYTES, Answer, Bad, Check, FollowTokens, Job, Mask, Sound, Unknown

MAX_FOLLOWED = 512  # requests; one more costs another its place, and that one is followed anew
PER_MASK_BYTES = 64  # of a packet, beside its bits, with its part of what else is said
MAX_COMPILED = 64  # grammars
MAX_COMPILED_BYTES = 2**20  # of their texts

# The first bound, which llguidance keeps itself. Fuel and items are about 10 ms of work each.
LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=30_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)


@dataclass(slots=True)
class _Followed:
    """One request: ``num_tokens`` of its answer are behind the matcher."""

    matcher: LLMatcher
    num_tokens: int = 0


class Follower:
    """Follows the grammars of requests for one tokenizer."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer
        self._followed: OrderedDict[str, _Followed] = OrderedDict()  # by request
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()  # by text
        self._num_compiled_bytes = 0

    def do(self, job: Job) -> Answer | None:
        """Do a job and return its answer. None: there is more to come before there is an answer."""
        try:
            if isinstance(job, Check):
                self._mask(self._matcher(job.grammar))
                return Sound(job.job)
            return self._follow(job)
        except GrammarError as error:
            if isinstance(job, FollowTokens):
                self._followed.pop(job.request, None)
            return Bad(job.job, str(error))

    def _follow(self, job: FollowTokens) -> Answer | None:
        followed = self._followed.pop(job.request, None)
        if job.start == 0 and job.grammar:
            followed = _Followed(self._matcher(job.grammar))
        if followed is None or followed.num_tokens != job.start:
            return Unknown(job.job)
        if job.tokens and not followed.matcher.consume_tokens(job.tokens):
            raise GrammarError("the answer so far does not keep to the grammar")
        followed.num_tokens += len(job.tokens)
        self._followed[job.request] = followed
        while len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)
        if not job.is_last:
            return None
        bits = self._mask(followed.matcher)
        forced = [] if job.drafts else _forced(followed.matcher, job.num_forced)
        drafts = forced or job.drafts
        return Mask(job.job, bits, 0.0, _further(followed.matcher, drafts, bits) if drafts else [], forced)

    def _matcher(self, grammar: str) -> LLMatcher:
        """Return a fresh matcher. What the compiled one of a text has worked out, its copies share."""
        compiled = self._compiled.get(grammar)
        if compiled is None:
            compiled = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LIMITS)
            _check(compiled)
            self._keep(grammar, compiled)
        self._compiled.move_to_end(grammar)
        return compiled.deep_copy()

    def _keep(self, grammar: str, compiled: LLMatcher) -> None:
        self._compiled[grammar] = compiled
        self._num_compiled_bytes += len(grammar)
        while len(self._compiled) > MAX_COMPILED or self._num_compiled_bytes > MAX_COMPILED_BYTES:
            text, _ = self._compiled.popitem(last=False)
            self._num_compiled_bytes -= len(text)

    @staticmethod
    def _mask(matcher: LLMatcher) -> bytes:
        bits: bytes = matcher.compute_bitmask()
        _check(matcher)
        if not any(bits):
            raise GrammarError("the grammar cannot be followed: no token may come next")
        return bits


def _forced(matcher: LLMatcher, most: int) -> list[int]:
    """Return the first tokens of the bytes that must come next, as the tokenizer writes them. The last of these bytes
    are left out while they may be part of a longer token.
    """
    forced: list[int] = matcher.compute_ff_tokens() if most else []
    return forced[:most]


def _further(matcher: LLMatcher, drafts: Sequence[int], bits: bytes) -> list[bytes]:
    """Return the masks after drafts, as many as one packet holds. A matcher of its own follows them: what it dies of is
    not the request's fault.
    """
    ahead, found = matcher.deep_copy(), list[bytes]()
    for draft in drafts[: MAX_PACKET_BYTES // (len(bits) + PER_MASK_BYTES) - 1]:
        if not bits[draft // 8] >> draft % 8 & 1 or not ahead.consume_token(draft):
            break
        bits = ahead.compute_bitmask()
        if ahead.is_error() or not any(bits):
            break
        found.append(bits)
    return found


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise GrammarError(f"the grammar cannot be followed: {reason_of(matcher.get_error())}")


def load_tokenizer(text: str, vocab_size: int, eos_token_ids: Sequence[int]) -> LLTokenizer:
    """Load a tokenizer for grammars. ``text`` is a tokenizer.json. Raise `GrammarError` if this library cannot
    read it.
    """
    try:
        return LLTokenizer(text, n_vocab=vocab_size, eos_token=list(eos_token_ids))
    except ValueError as error:
        raise GrammarError(f"this model's tokenizer cannot follow grammars: {reason_of(str(error))}") from None
