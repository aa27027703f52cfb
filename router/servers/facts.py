"""Facts that a server tells when it is asked: which software it is, what it serves, how loaded it is."""

from dataclasses import dataclass
from enum import StrEnum


class ServerKind(StrEnum):
    """Software that answers the OpenAI API."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_CPP = "llama.cpp"
    OPENAI = "openai"  # any other: nothing is assumed of it


@dataclass(frozen=True, slots=True)
class ServedName:
    """A model as the server names it. ``max_context`` counts tokens of prompt and answer; None: it does not say."""

    id: str
    max_context: int | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server. ``version``: empty if it does not say."""

    kind: ServerKind
    version: str
    models: tuple[ServedName, ...]
    takes_token_ids: bool = False  # /v1/completions takes a prompt as token ids
    returns_token_ids: bool = False  # answers carry token ids if ``return_token_ids`` asks for them
    tokenizes: bool = False  # it has vLLM's /tokenize
    continues_messages: bool = False  # chats take ``continue_final_message``

    @property
    def title(self) -> str:
        """Return kind and version, for people."""
        return f"{self.kind} {self.version}".rstrip()


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What a server's metrics say. None: they do not say."""

    num_running: int | None = None
    num_waiting: int | None = None
    kv_used: float | None = None  # the share of its KV memory, 0 to 1
    kv_tokens: int | None = None  # that fit into its KV memory
    has_prefix_cache: bool | None = None
