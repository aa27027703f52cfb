"""Services that servers of others have, as the API sees them."""

from dataclasses import dataclass
from typing import Final

from mesh.topology.schema import ServiceSpec, Task
from router.api.access.terms import Offered, terms_of
from router.api.forward.tokenizing import PromptTokenizer

UNKNOWN_CONTEXT: Final = 2**20  # tokens of prompt and answer, where nobody says how many a server takes
SERVER: Final = "server"  # in the place of a tokenizer: the servers are asked
USUAL_ANSWER: Final = 4096  # tokens that are reckoned with, where neither requests nor services have a limit


@dataclass(frozen=True, slots=True)
class ForwardedModel(Offered):
    """A service on servers of others. ``max_context``: tokens of prompt and answer; None: the server knows."""

    max_context: int | None
    max_output_tokens: int | None
    tokenizer: PromptTokenizer | None = None  # None: lengths are estimated, unless ``asks_server``
    asks_server: bool = False  # how many tokens a prompt has
    task: Task = Task.GENERATE  # that its topology says; the server judges what it is asked

    @classmethod
    def of(cls, spec: ServiceSpec) -> "ForwardedModel":
        """Raise `UserError` if its tokenizer cannot be read."""
        is_here = spec.tokenizer not in (None, SERVER)
        return cls(
            **terms_of(spec),
            max_context=spec.max_context,
            max_output_tokens=spec.max_output_tokens,
            tokenizer=PromptTokenizer.load(spec.name, str(spec.tokenizer)) if is_here else None,
            asks_server=spec.tokenizer == SERVER,
            task=spec.task,
        )

    def bound(self, asked: int | None) -> int:
        """Return after how many tokens an answer is cut off, because its server does not end it."""
        return asked or self.max_output_tokens or self.max_context or UNKNOWN_CONTEXT

    def most_tokens(self, asked: int | None, num_prompt: int) -> int:
        """Return how long an answer is taken to be at most: the server itself judges what is asked for."""
        room = max(1, (self.max_context or UNKNOWN_CONTEXT) - num_prompt)
        return max(1, min(asked or self.max_output_tokens or USUAL_ANSWER, room))
