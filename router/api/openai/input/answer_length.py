"""Says how long an answer may be: as its client asks, or as the service has it, within the model's context."""

from dataclasses import dataclass
from typing import Final

from router.api.errors import bad_parameter, too_long
from router.api.openai.input.bodies import ChatBody, CompletionBody
from router.api.openai.models import ServedModel

DEFAULT_COMPLETION_TOKENS: Final = 16  # OpenAI's


@dataclass(frozen=True, slots=True)
class AnswerLength:
    """How many tokens are asked for; ``asked`` is None if the client leaves it to the service."""

    param: str
    asked: int | None
    default: int | None  # None: as many as fit

    @classmethod
    def of_completion(cls, body: CompletionBody) -> "AnswerLength":
        return cls("max_tokens", body.max_tokens, DEFAULT_COMPLETION_TOKENS)

    @classmethod
    def of_chat(cls, body: ChatBody) -> "AnswerLength":
        if body.max_completion_tokens is not None:
            return cls("max_completion_tokens", body.max_completion_tokens, None)
        return cls("max_tokens", body.max_tokens, None)

    def resolve(self, prompt_param: str, num_prompt: int, model: ServedModel) -> int:
        """Raise `ApiError` if prompt and answer do not fit the model's context or the service's limit."""
        room = model.max_context - num_prompt
        limit = model.max_output_tokens or model.max_context
        if self.asked is None:
            if room < 1:
                raise too_long(prompt_param, num_prompt, 1, model.max_context)
            return min(room, limit, self.default or limit)
        if self.asked > limit:
            raise bad_parameter(self.param, f"must be at most {limit} for this model, not {self.asked}")
        if max(1, self.asked) > room:
            raise too_long(prompt_param, num_prompt, max(1, self.asked), model.max_context)
        return max(1, self.asked)
