import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers

from engines.models.errors import ModelError
from engines.models.text.chat_template import Chat
from engines.models.text.tokenizer import Tokenizer

shared_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("🦊👩‍👩‍👧狐狸é ▁")))


@pytest.fixture
def tokenizer(model_folder: Path) -> Tokenizer:
    return Tokenizer.load(model_folder)


@pytest.fixture
def sentencepiece(model_folder: Path) -> tokenizers.Tokenizer:
    """Llama 2's kind: metaspaces, bytes as tokens, a space put in front and taken away again."""
    vocabulary = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁helowrd", "he", "▁w", "▁h"]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(vocabulary)},
            merges=[("h", "e"), ("▁", "w"), ("▁", "h")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.save(str(model_folder / "tokenizer.json"))
    return backend


def streamed(tokenizer: Tokenizer, tokens: list[int], skip: bool = True) -> list[str]:
    detokenizer = tokenizer.detokenizer(skip)
    return [*(detokenizer.feed([token]) for token in tokens), detokenizer.finish()]


def test_encoding_is_the_librarys_own(tokenizer: Tokenizer, byte_level: tokenizers.Tokenizer):
    text = "<|im_start|>hello world 狐狸"
    assert tokenizer.encode(text) == byte_level.encode(text).ids
    assert (tokenizer.vocab_size, tokenizer.special_ids) == (266, {0, 1, 2})
    assert (tokenizer.id_of("<|im_end|>"), tokenizer.token_of(2), tokenizer.id_of("nothing")) == (2, "<|im_end|>", None)


def test_every_token_that_ends_an_answer_is_known(tokenizer: Tokenizer):
    assert tokenizer.eos_ids == {0, 2}  # of config.json and of tokenizer_config.json


def test_a_chat_is_its_rendered_text(tokenizer: Tokenizer):
    messages = [{"role": "user", "content": "hello"}]
    rendered = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.render_chat(Chat(messages)) == rendered
    assert tokenizer.encode_chat(Chat(messages)) == tokenizer.encode(rendered)


def test_half_a_character_waits_for_its_other_half(tokenizer: Tokenizer):
    tokens = tokenizer.encode("a🦊b")
    assert streamed(tokenizer, tokens) == ["a", "", "", "", "🦊", "b", ""]
    assert streamed(tokenizer, tokens[:3]) == ["a", "", "", "�"]
    assert tokenizer.token_bytes(tokens[1]) == b"\xf0"


def test_special_tokens_are_shown_when_asked_for(tokenizer: Tokenizer):
    tokens = tokenizer.encode("<|im_start|>hello<|im_end|>")
    assert tokenizer.decode(tokens) == "hello"
    assert tokenizer.decode(tokens, skip_special_tokens=False) == "<|im_start|>hello<|im_end|>"


def test_tokens_beyond_the_vocabulary_stand_for_nothing(tokenizer: Tokenizer):
    assert tokenizer.decode([-1, 10_000, 2**40, *tokenizer.encode("a")]) == "a"


@shared_fixtures
@given(tokens=st.lists(st.integers(0, 270)), skip=st.booleans())
def test_streaming_any_tokens_gives_the_librarys_text(
    tokenizer: Tokenizer, byte_level: tokenizers.Tokenizer, tokens: list[int], skip: bool
):
    whole = byte_level.decode(tokens, skip_special_tokens=skip)
    assert "".join(streamed(tokenizer, tokens, skip)) == tokenizer.decode(tokens, skip) == whole


@shared_fixtures
@given(text=TEXTS)
def test_streaming_a_text_shows_whole_characters_only(tokenizer: Tokenizer, text: str):
    pieces = streamed(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    assert "�" in text or not any("�" in piece for piece in pieces)


@shared_fixtures
@given(text=TEXTS)
def test_sentencepiece_text_equals_the_librarys(sentencepiece: tokenizers.Tokenizer, model_folder: Path, text: str):
    tokenizer = Tokenizer.load(model_folder)
    tokens = tokenizer.encode(text)
    assert tokens == sentencepiece.encode(text).ids
    assert tokenizer.decode(tokens) == sentencepiece.decode(tokens)
    assert "".join(streamed(tokenizer, tokens)).removeprefix(" ") == tokenizer.decode(tokens)


@pytest.mark.usefixtures("sentencepiece")
def test_a_continuation_keeps_its_first_space(model_folder: Path):
    tokenizer = Tokenizer.load(model_folder)
    tokens = tokenizer.encode("he")
    assert tokenizer.decode(tokens) == "he"
    assert "".join(streamed(tokenizer, tokens)) == " he"


def test_files_that_cannot_be_used_say_why(model_folder: Path, byte_level: tokenizers.Tokenizer):
    byte_level.decoder = decoders.WordPiece()
    byte_level.save(str(model_folder / "tokenizer.json"))
    with pytest.raises(
        ModelError, match="the decoder WordPiece is not supported; want byte-level or SentencePiece BPE"
    ):
        Tokenizer.load(model_folder)
    (model_folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json: "):
        Tokenizer.load(model_folder)


def test_templates_in_files_win_over_the_configuration(model_folder: Path, byte_level: tokenizers.Tokenizer):
    (model_folder / "chat_template.jinja").write_text("{{ eos_token }}")
    config = {"eos_token": {"content": "<|im_end|>"}, "chat_template": [{"name": "default", "template": "old"}]}
    (model_folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(model_folder).render_chat(Chat([])) == "<|im_end|>"
    (model_folder / "chat_template.jinja").unlink()
    assert Tokenizer.load(model_folder).render_chat(Chat([])) == "old"
    (model_folder / "tokenizer_config.json").write_text('{"eos_token": 3}')
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: Expected"):
        Tokenizer.load(model_folder)
