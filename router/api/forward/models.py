"""Services that servers of others have, as the API sees them."""

from dataclasses import dataclass
from typing import Final

from mesh.topology.schema import ServiceSpec, Slo, Task
from router.api.forward.tokenizing import PromptTokenizer

UNKNOWN_CONTEXT: Final = 2**20  # tokens of prompt and answer, where nobody says how many a server takes
SERVER: Final = "server"  # in the place of a tokenizer: the servers are asked
USUAL_ANSWER: Final = 4096  # tokens at most, of requests that do not say and services that have no limit


@dataclass(frozen=True, slots=True)
class ForwardedModel:
    """A service on servers of others. ``max_context``: tokens of prompt and answer; None: the server knows."""

    service: str
    aliases: tuple[str, ...]
    slo: Slo
    priority: int
    max_priority: int  # that a client may ask for
    min_ttft_s: float  # the tightest promise that a client may ask for
    min_tpot_s: float
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
            service=spec.name,
            aliases=spec.aliases,
            slo=spec.slo,
            priority=spec.priority,
            max_priority=spec.highest_priority,
            min_ttft_s=spec.tightest_ttft_s,
            min_tpot_s=spec.tightest_tpot_s,
            max_context=spec.max_context,
            max_output_tokens=spec.max_output_tokens,
            tokenizer=PromptTokenizer.load(spec.name, str(spec.tokenizer)) if is_here else None,
            asks_server=spec.tokenizer == SERVER,
            task=spec.task,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (self.service, *self.aliases)

    def most_tokens(self, asked: int | None, num_prompt: int) -> int:
        """Return how long an answer may be, as far as that is known: the server itself judges what is asked for."""
        room = max(1, (self.max_context or UNKNOWN_CONTEXT) - num_prompt)
        return max(1, min(asked or self.max_output_tokens or USUAL_ANSWER, room))
