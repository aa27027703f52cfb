"""Decides how an answer to a chat is read, and what grammar it keeps to."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from router.api.errors import ApiError, bad_parameter
from router.api.openai.answers.choice import Prompt
from router.api.openai.chat.asked import most_reasoning_tokens
from router.api.openai.input.bodies import ChatBody
from router.api.openai.input.grammar_checks import CheckedGrammar
from router.api.openai.input.grammars import Grammar, grammar_of
from router.chat.answer_grammar import answer_grammar
from router.chat.answer_reader import AnswerReader
from router.chat.calls.harmony import Harmony
from router.chat.channel_grammar import channel_grammar
from router.chat.channel_reader import ChannelReader
from router.chat.reasoning import ReasoningState
from router.chat.style import ChatStyle
from router.chat.tools import Choosing, ToolUse

MAX_BYTES = 65_536  # of a grammar with tools; where theirs would be larger, arguments may be any object

Check = Callable[[Grammar], Awaitable[CheckedGrammar]]


class AnswerPlan(Struct, frozen=True):
    """How one answer is read. ``use``: None if it may call no tools."""

    style: ChatStyle
    state: ReasoningState
    use: ToolUse | None
    most_reasoning_tokens: int | None
    form: Grammar | None

    @classmethod
    def of(cls, body: ChatBody, style: ChatStyle, use: ToolUse | None, prompt: Prompt) -> "AnswerPlan":
        """Raise `ApiError` on what contradicts itself."""
        used = None if use is None or use.choosing is Choosing.NONE else use
        form = grammar_of(body)
        if used is not None and body.ignore_eos:
            raise bad_parameter("ignore_eos", "cannot be true where an answer may call tools, and ends with the calls")
        if used is not None and used.choosing is Choosing.REQUIRED and form is not None:
            raise bad_parameter(
                "tool_choice", f"contradicts {form.param.partition('.')[0]}: an answer is calls or has a form"
            )
        return cls(style, prompt.reasoning, used, most_reasoning_tokens(body, style), form)

    def reader(self) -> AnswerReader | ChannelReader | None:
        """Return a reader for one choice. None: its text is all content."""
        if isinstance(self.style.calls, Harmony):
            return ChannelReader()
        if self.use is None and self.style.reasoning is None:
            return None
        is_open = self.state is ReasoningState.OPEN
        reasoning = None if self.state is ReasoningState.CLOSED else self.style.reasoning
        if self.use is None:
            return AnswerReader(reasoning, None, begins_in_reasoning=is_open)
        return AnswerReader(reasoning, self.style.calls, self.use.tools, begins_in_reasoning=is_open)

    async def grammar(self, check: Check) -> CheckedGrammar | None:
        """Return the grammar that the answer keeps to. None: it is free. Raise `ApiError` if it cannot be followed.

        Arguments of tools that are not strict may be any object where their schemas cannot be followed.
        """
        if self.use is None:
            return None if (grammar := self._grammar(None)) is None else await check(grammar)
        grammar, loosened = self._grammar(self.use), self.use.loosened()
        assert grammar is not None
        if loosened != self.use:
            try:
                if len(grammar.text) <= MAX_BYTES:
                    return await check(grammar)
            except ApiError as error:
                if error.status != 400:
                    raise
            grammar = self._grammar(loosened)
            assert grammar is not None
        if len(grammar.text) > MAX_BYTES:
            most = f"their schemas can take at most {MAX_BYTES} characters in all"
            raise bad_parameter(grammar.param, f"are too large: {most}")
        return await check(grammar)

    def _grammar(self, use: ToolUse | None) -> Grammar | None:
        if use is None and (self.style.reasoning is None or (self.form is None and self.most_reasoning_tokens is None)):
            return self.form
        text = self._text(use, None if self.form is None else self.form.form)
        if use is not None:
            return Grammar("tools", text)
        return Grammar("thinking_token_budget" if self.form is None else self.form.param, text)

    def _text(self, use: ToolUse | None, form: Mapping[str, Any] | None) -> str:
        style, most = self.style, self.most_reasoning_tokens
        if isinstance(style.calls, Harmony):
            return channel_grammar(style.special_token, style.calls, most_reasoning_tokens=most, use=use, form=form)
        return answer_grammar(
            style.special_token,
            reasoning=style.reasoning,
            state=self.state,
            most_reasoning_tokens=most,
            calls=style.calls,
            use=use,
            form=form,
        )
