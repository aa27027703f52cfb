"""The models that a gateway serves, by the names that clients use."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import structlog

from engines.grammars.process import Vocabulary
from engines.models.files.model_config import ModelConfig
from engines.models.tasks import check_task
from engines.models.text.detokenizer import Detokenizer
from engines.models.text.infill import InfillTokens, infill_tokens
from engines.models.text.pieces import Pieces
from engines.models.text.tokenizer import Tokenizer
from mesh.errors import UserError
from mesh.rules import Counting
from mesh.topology.schema import ServiceSpec, Task
from mesh.wire.adapters import LoraAdapter
from router.api.access.terms import Offered, terms_of
from router.api.errors import ApiError, bad_parameter, not_allowed, unknown_model
from router.api.forward.models import ForwardedModel
from router.api.http.callers import Caller
from router.api.openai.input.grammar_checks import GrammarChecks
from router.api.openai.input.word_cache import Words
from router.api.openai.pooled.model import PooledModel
from router.chat.style import ChatStyle, style_of
from router.images.sight import BLIND, Sight, sight_of

log = structlog.get_logger()

log = structlog.get_logger()

SLICE: Final = 16_384  # characters of a long text that are tokenised at a time
CUT: Final = 16  # tokens that a slice may have more than the same text in one piece, at the most


@dataclass(frozen=True, slots=True)
class ServedModel(Offered):
    """A service as the API sees it. ``max_context`` counts tokens of prompt and answer."""

    max_context: int
    max_output_tokens: int | None
    temperature: float  # of requests that name none
    top_p: float
    vocab_size: int
    tokenizer: Tokenizer
    has_special_ends: bool  # a text gets special tokens around it, if that is wanted
    words: Words | None  # a shorter way to the same tokens, if there is one for this tokenizer
    longest_token: int  # characters
    grammars: GrammarChecks
    style: ChatStyle  # of its chats
    marked_pieces: Pieces  # what tokens stand for, markers of calls and of reasoning among them
    starting_tokens: tuple[int, ...]  # of every text
    infill: InfillTokens | None  # None: the model was not made to fill in
    apart_token: int | None  # that ends reasoning, where promises do not count that
    sight: Sight = BLIND
    base: str = ""  # of a LoRA adapter: the service that engines hold
    adapter: LoraAdapter | None = None
    task: ClassVar = Task.GENERATE

    @classmethod
    def load(cls, spec: ServiceSpec, folder: Path, backends: Collection[str] = ()) -> "ServedModel":
        """Load the tokenizer and the template of a model. ``folder`` holds the prepared model; ``backends``: of its
        engines. Raise `ModelError` if it cannot be read, `UserError` if it cannot be served as its service wants.
        """
        config = ModelConfig.load(folder)
        check_task(folder, config, spec.task)
        tokenizer = Tokenizer.load(folder)
        style = style_of(
            tokenizer.template, tokenizer.added_id_of, tokenizer.special_ids, spec.tool_format, spec.reasoning_format
        )
        if style.is_guessed:
            log.warning("a chat template shows no known calls", service=spec.name, tool_format=style.calls.name)
        return cls(
            **terms_of(spec),
            max_context=min(spec.max_context or config.max_context, config.max_context),
            max_output_tokens=spec.max_output_tokens,
            temperature=spec.temperature,
            top_p=spec.top_p,
            vocab_size=config.vocab_size,
            tokenizer=tokenizer,
            has_special_ends=bool(tokenizer.encode("")),
            words=Words.load(folder, partial(tokenizer.encode, add_special_tokens=False)),
            longest_token=tokenizer.longest_token,
            grammars=GrammarChecks(Vocabulary(folder, config.vocab_size, tuple(config.eos_token_ids))),
            style=style,
            marked_pieces=tokenizer.showing(frozenset(style.special_tokens.values())),
            starting_tokens=tuple(tokenizer.encode("")),
            infill=infill_tokens(tokenizer.added_id_of),
            apart_token=_apart_token(spec, style),
            sight=sight_of(folder, backends),
        )

    def detokenizer(self, *, with_markers: bool) -> Detokenizer:
        """Return a detokenizer for one answer. ``with_markers``: those of calls and of reasoning are shown."""
        return Detokenizer(self.marked_pieces, False) if with_markers else self.tokenizer.detokenizer()

    def with_adapter(self, spec: ServiceSpec, adapter: LoraAdapter) -> "ServedModel":
        """Return an adapter of this model: the same tokens and template, under promises of its own."""
        return replace(
            self,
            **terms_of(spec),
            max_context=min(spec.max_context or self.max_context, self.max_context),
            max_output_tokens=spec.max_output_tokens,
            temperature=spec.temperature,
            top_p=spec.top_p,
            base=self.service,
            adapter=adapter,
        )

    @property
    def held_as(self) -> str:
        """Return the service that engines hold."""
        return self.base or self.service

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return a text's tokens, with those around them that every text has if that is wanted."""
        tokens = self.words.encode(text) if self.words and not (add_special_tokens and self.has_special_ends) else None
        return self.tokenizer.encode(text, add_special_tokens) if tokens is None else tokens

    @property
    def max_characters(self) -> int:
        """Longer texts cannot fit the context, whatever they say."""
        return self.max_context * self.longest_token

    def encode_long(self, text: str, *, add_special_tokens: bool) -> list[int] | None:
        """Return a text's tokens; None if they are more than the context. For a thread: the library lets the
        interpreter go on.
        """
        if len(text) > self.max_characters or not self._may_fit(text):
            return None
        return self.tokenizer.encode(text, add_special_tokens)

    def _may_fit(self, text: str) -> bool:
        """Stops at the slice with which it is certain that there are too many tokens."""
        num_tokens = 0
        for start in range(0, len(text), SLICE):
            num_tokens += len(self.tokenizer.encode(text[start : start + SLICE], add_special_tokens=False)) - CUT
            if num_tokens > self.max_context:
                return False
        return True

    def token_text(self, token: int) -> str:
        """A token on its own; bytes that are no whole character show as U+FFFD."""
        return self.tokenizer.token_bytes(token).decode(errors="replace")


Model = ServedModel | PooledModel | ForwardedModel


class Models:
    """Finds a model by its name or an alias. ``forwarded``: those that servers of others have."""

    def __init__(self, models: Iterable[ServedModel | PooledModel], forwarded: Iterable[ForwardedModel] = ()) -> None:
        self._all: tuple[Model, ...] = (*models, *forwarded)
        self._by_name = self._named = {name: model for model in self._all for name in model.names}
        self.has_forwarded: Final = any(isinstance(model, ForwardedModel) for model in self._all)
        self.has_own: Final = any(isinstance(model, ServedModel) for model in self._all)

    @property
    def apart_tokens(self) -> dict[str, int]:
        """Return the tokens that end reasoning, by the services whose promises do not count it."""
        ours = (model for model in self._all if isinstance(model, ServedModel))
        return {model.service: model.apart_token for model in ours if model.apart_token is not None}

    def serve_added(self, added: Iterable[ServedModel]) -> None:
        """Serve these adapters beside what there was from the beginning, and no others."""
        self._by_name = {**{model.service: model for model in added}, **self._named}

    def find(self, name: str | None, caller: Caller) -> ServedModel:
        """Find a model by its name; without one, the only model, if there is only one.

        Raise `ApiError`: 404, 400 without a name, 403 if it is not for this caller.
        """
        model = self.find_any(name, caller)
        if isinstance(model, ForwardedModel):
            raise bad_parameter("model", f"{name or model.service} is on servers of others, which do not do this here")
        if isinstance(model, PooledModel):
            raise bad_parameter("model", f"{name or model.service} makes no text; ask {model.paths}")
        return model

    def find_pooled(self, name: str | None, caller: Caller) -> PooledModel:
        """Likewise one that makes vectors or scores of texts."""
        model = self.find_any(name, caller)
        if not isinstance(model, PooledModel):
            problem = f'{name or model.service} has task = "generate", and makes no vectors or scores'
            raise bad_parameter("model", f"{problem}; ask a model whose task in /v1/models is embed or score")
        return model

    def find_any(self, name: str | None, caller: Caller) -> Model:
        """Likewise, on whatever engines it is."""
        if name is None and len(self._all) > 1:
            message = f"model: is required; this gateway serves {', '.join(self._names(caller))}"
            raise ApiError(400, message, param="model", code="missing_required_parameter")
        model = self._all[0] if name is None else self._by_name.get(name)
        if model is None:
            raise unknown_model(name or "", self._names(caller))
        if not caller.may_use(model.service):
            raise not_allowed(f"This key may not use the model {name or model.service!r}", "model_not_allowed", "model")
        return model

    def entries(self, created: int, caller: Caller) -> list[dict[str, object]]:
        """Return what /v1/models lists: the models that this caller may use."""
        return [entry(name, self._by_name[name], created) for name in self._names(caller)]

    def _names(self, caller: Caller) -> list[str]:
        return [name for name, model in self._by_name.items() if caller.may_use(model.service)]


def _apart_token(spec: ServiceSpec, style: ChatStyle) -> int | None:
    if spec.reasoning is Counting.COUNTED:
        return None
    token = None if style.reasoning is None else style.special_token(style.reasoning.end)
    if token is None:
        raise UserError(f'services.{spec.name}.reasoning: "apart" needs a model with a token that ends reasoning')
    return token


def entry(name: str, model: Model, created: int) -> dict[str, object]:
    """Return what /v1/models tells of a model."""
    root, parent = model.service, None
    more: dict[str, object] = {}
    if isinstance(model, ServedModel):
        more = {"input_modalities": ["text"] if model.sight.form is None else ["text", "image"]}
        if model.adapter is not None:
            root, parent = Path(model.adapter.folder).name, model.base
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "meshserve",
        "root": root,
        "parent": parent,
        "max_model_len": model.max_context,
        "task": str(model.task),
        **more,
    }
