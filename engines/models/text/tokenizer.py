"""A model's tokenizer, without transformers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.text.chat_template import Chat, ChatTemplate
from engines.models.text.detokenizer import Detokenizer
from engines.models.text.pieces import Pieces, drops_first_space, spelling_of
from engines.models.text.tokenizer_config import TokenizerConfig
from engines.models.text.tokenizer_file import load_backend


class Tokenizer:
    """Text, chats and tokens of one model. Equal to transformers' ``AutoTokenizer`` in what it encodes and decodes."""

    def __init__(
        self, backend: tokenizers.Tokenizer, config: TokenizerConfig, eos_ids: Iterable[int], origin: Path
    ) -> None:
        decoder: Mapping[str, Any] = json.loads(backend.to_str())["decoder"] or {"type": None}
        spelling = spelling_of(decoder)
        if spelling is None:
            raise ModelError(
                f"{origin}: the decoder {decoder['type']} is not supported; want byte-level or SentencePiece BPE"
            )
        added = backend.get_added_tokens_decoder()
        special = frozenset(id_ for id_, token in added.items() if token.special)
        self._backend = backend
        self._drops_first_space = drops_first_space(decoder)
        self._spelling = spelling
        self._pieces = Pieces(backend.id_to_token, spelling, skipped=frozenset())
        self._plain_pieces = Pieces(backend.id_to_token, spelling, skipped=special)
        self._template = ChatTemplate(config.chat_templates, config.special_tokens, origin)
        self.special_ids = special
        self._added = {token.content: id_ for id_, token in added.items()}
        self.eos_ids = frozenset(eos_ids)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Read a prepared model's folder. Raises `ModelError`."""
        backend = load_backend(folder)
        config = TokenizerConfig.load(folder)
        eos = backend.token_to_id(config.special_tokens.get("eos_token", ""))
        eos_ids = ModelConfig.load(folder).eos_token_ids + (() if eos is None else (eos,))
        return cls(backend, config, eos_ids, folder)

    @property
    def vocab_size(self) -> int:
        """Tokens, added ones among them. The model's own table may be larger."""
        return int(self._backend.get_vocab_size())

    @property
    def longest_token(self) -> int:
        """The longest token, in characters as the vocabulary spells it: never fewer than those of the text that it
        stands for.
        """
        return max(map(len, self._backend.get_vocab()), default=1)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Encode a text. In a thread it leaves the interpreter to others, because it calls the library's way for
        batches.
        """
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    @property
    def template(self) -> ChatTemplate:
        return self._template

    def render_chat(self, chat: Chat) -> str:
        """A chat as the text of a prompt, special tokens included. Raises `ChatError`."""
        return self._template.render(chat)

    def encode_chat(self, chat: Chat) -> list[int]:
        """A chat as the tokens of a prompt. Raises `ChatError`."""
        return self.encode(self.render_chat(chat), add_special_tokens=False)

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        detokenizer = self.detokenizer(skip_special_tokens, continues=False)
        return detokenizer.feed(tokens) + detokenizer.finish()

    def detokenizer(self, skip_special_tokens: bool = True, continues: bool = True) -> Detokenizer:
        """Return a detokenizer for one stream of tokens. A text that ``continues`` another keeps its first space."""
        pieces = self._plain_pieces if skip_special_tokens else self._pieces
        return Detokenizer(pieces, self._drops_first_space and not continues)

    def showing(self, tokens: frozenset[int]) -> Pieces:
        """Return what tokens stand for where of the special ones only ``tokens`` are shown."""
        return Pieces(self._backend.id_to_token, self._spelling, skipped=self.special_ids - tokens)

    def token_bytes(self, token: int) -> bytes:
        """Return what a token stands for, which need not be whole characters."""
        return self._pieces[token]

    def token_of(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it."""
        return self._backend.id_to_token(token_id)

    def added_id_of(self, text: str) -> int | None:
        """Return the token that was added to the vocabulary for a text as a whole, if there is one."""
        return self._added.get(text)

    def id_of(self, token: str) -> int | None:
        return self._backend.token_to_id(token)
