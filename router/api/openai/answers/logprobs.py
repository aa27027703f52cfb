"""Log-probabilities in the two shapes that OpenAI gives them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from mesh.wire.requests import TokenLogprobs
from router.api.openai.models import ServedModel


def chat_logprobs(model: ServedModel, entries: Sequence[TokenLogprobs]) -> dict[str, object]:
    """Write the log-probabilities of a chat: ``choices[].logprobs`` of a chat completion."""
    return {"content": [_chat_entry(model, entry) for entry in entries], "refusal": None}


def _chat_entry(model: ServedModel, entry: TokenLogprobs) -> dict[str, object]:
    top = [_chat_token(model, token, logprob) for token, logprob in entry.top]
    return _chat_token(model, entry.token, entry.logprob) | {"top_logprobs": top}


def _chat_token(model: ServedModel, token: int, logprob: float) -> dict[str, object]:
    return {"token": model.token_text(token), "logprob": logprob, "bytes": list(model.tokenizer.token_bytes(token))}


class JsonLists:
    """Lists by name, which grow and are kept as JSON."""

    def __init__(self) -> None:
        self._lists: defaultdict[str, bytearray] = defaultdict(bytearray)

    def add(self, more: Mapping[str, object]) -> None:
        """Add the lists of an object. What is no list is left out."""
        for name, entries in more.items():
            if isinstance(entries, list):
                so_far, added = self._lists[name], msgspec.json.encode(entries)[1:-1]
                so_far += b"," + added if so_far and added else added

    def json(self) -> dict[str, object]:
        return {name: msgspec.Raw(b"[" + bytes(entries) + b"]") for name, entries in self._lists.items()}


class CompletionLogprobs:
    """Writes the log-probabilities of a completion: ``choices[].logprobs`` of a completion. Remembers where in the text
    the next token starts.
    """

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._offset = 0

    def add(
        self,
        prompt: Sequence[int],
        prompt_entries: Sequence[TokenLogprobs | None],
        entries: Sequence[TokenLogprobs],
    ) -> dict[str, object]:
        """Add those of new tokens to those of an echoed prompt, or to nothing."""
        tokens = [*prompt, *(entry.token for entry in entries)]
        all_entries = [*prompt_entries, *entries]
        texts = [self._model.token_text(token) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "text_offset": offsets,
            "token_logprobs": [entry and entry.logprob for entry in all_entries],
            "tokens": texts,
            "top_logprobs": [entry and self._top(entry) for entry in all_entries],
        }

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """Likeliest first, the chosen token among them. Of tokens that look the same, the likeliest counts."""
        top: dict[str, float] = {}
        for token, logprob in (*entry.top, (entry.token, entry.logprob)):
            top.setdefault(self._model.token_text(token), logprob)
        return top


class PromptLogprobsById:
    """Writes the log-probabilities of a prompt as vLLM has them: by token id, with rank and text; null at the first."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._json = msgspec.Raw(b"null")

    def add(self, entries: Sequence[TokenLogprobs | None] | None) -> None:
        """Take what comes with a piece, which has them once at most."""
        if entries is not None:
            self._json = msgspec.Raw(msgspec.json.encode([entry and self._entry(entry) for entry in entries]))

    def json(self) -> msgspec.Raw:
        return self._json

    def _entry(self, entry: TokenLogprobs) -> dict[str, object]:
        """The token of the prompt and the likeliest ones. A token that is not among those has no rank here."""
        found: dict[str, object] = {}
        for rank, (token, logprob) in enumerate(entry.top, start=1):
            found[str(token)] = self._token(token, logprob, rank)
        found.setdefault(str(entry.token), self._token(entry.token, entry.logprob, None))
        return found

    def _token(self, token: int, logprob: float, rank: int | None) -> dict[str, object]:
        return {"logprob": logprob, "rank": rank, "decoded_token": self._model.token_text(token)}
