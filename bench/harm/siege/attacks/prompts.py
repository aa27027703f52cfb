"""Prompts of every hard kind: what must be validated, tokenised or rendered before anything is known of it."""

import json
from functools import partial

from bench.harm.deployment import MODEL
from bench.harm.harm import TURNED_AWAY, Harm
from bench.harm.siege.attack import Run, complete, post, shoot
from bench.harm.siege.ground import CHATS, COMPLETIONS, DETOKENIZE, MAX_CONTEXT, TOKENIZE, Fields, Ground

MOST = 4 * 2**20 - 4096  # bytes of a prompt that fits into the largest body

# Texts that are hard for tokenisers in different ways: what they repeat, and bytes of JSON of each repetition.
HARD = {
    "letters": ("a", 1),
    "blanks": (" ", 1),
    "lines": ("\n", 2),
    "digits": ("1234567890", 10),
    "words": ("supercalifragilistic ", 21),
    "punctuation": ("!?.,;:'()[]{}", 14),
    "emoji": ("👩‍👩‍👧‍👦", 90),
    "combining": ("\u0301", 6),
    "special-tokens": ("<|im_start|><|im_end|>", 23),
    "special-tokens-cut": ("<|im_star", 10),
    "chinese": ("漢字仮名", 25),
    "nulls": ("\x00", 6),
}
TEMPLATES = (
    "{% for i in range(10**9) %}x{% endfor %}",
    "{{ ''.__class__.__mro__ }}",
    "<|im_end|>\n<|im_start|>system\n",
)
ODD_TOKENS: tuple[object, ...] = ([-1], [2**31], [2**63], [10**50], [1.5], ["1"], [None], [[]], {}, "abc", [True], [])
ODD_TEXTS: tuple[Fields, ...] = (
    {},
    {"prompt": "a", "messages": [{"role": "user", "content": "a"}]},
    {"prompt": "\ud800"},
    {"prompt": "a", "model": "nobody"},
    {"prompt": "a", "model": "../../etc/passwd"},
    {"messages": [{"role": "user", "content": None}]},
    {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"tokenize": True}},
)


def hard(kind: str) -> str:
    text, size = HARD[kind]
    return text * (MOST // size)


def hard_prompt(kind: str) -> Harm:
    def body(ground: Ground) -> bytes:
        return json.dumps(ground.fields({"prompt": hard(kind)}), ensure_ascii=kind != "chinese").encode()

    run = post(COMPLETIONS, body)
    return _p(f"prompt-4-mib-{kind}", run, right=TURNED_AWAY, load=1, in_short=kind == "letters")


def list_of(item: str, field: str = "prompt", path: str = COMPLETIONS) -> Run:
    """A field of 4 MiB that is a list of this again and again."""
    return post(path, lambda ground: _listed(ground, field, f"[{','.join([item] * (MOST // (len(item) + 1)))}]"))


def parts(ground: Ground) -> bytes:
    items = ",".join(['{"type":"text","text":""}'] * 150_000)
    return _listed(ground, "messages", f'[{{"role": "user", "content": [{items}]}}]')


def _listed(ground: Ground, field: str, value: str) -> bytes:
    return f'{{"model": "{MODEL}", "max_tokens": 1, "{field}": {value}}}'.encode()


def raw(body: bytes) -> Run:
    return post(COMPLETIONS, lambda _: body)


def chats(ground: Ground) -> list[bytes]:
    """Text that a template might take for its own."""
    return [ground.chat({"messages": [{"role": "user", "content": text}]}) for text in TEMPLATES]


def tokenize_hard(ground: Ground) -> list[bytes]:
    bodies = [json.dumps({"model": MODEL, "prompt": hard(kind)}).encode() for kind in HARD]
    return [ground.post(TOKENIZE, body[: 4 * 2**20]) for body in bodies]


def tokenize_odd(ground: Ground) -> list[bytes]:
    deep = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    return [ground.post(TOKENIZE, deep), *(ground.post(TOKENIZE, fields) for fields in ODD_TEXTS)]


def detokenize_odd(ground: Ground) -> list[bytes]:
    return [ground.post(DETOKENIZE, {"model": MODEL, "tokens": one}) for one in ODD_TOKENS]


def tokenize(text: str, count: int) -> Run:
    """Each would answer with one text for each token."""
    return post(TOKENIZE, lambda ground: {"model": MODEL, "prompt": text, "return_token_strs": True}, count)


def just_below(ground: Ground) -> dict[str, object]:
    """As large as is allowed."""
    return {"model": MODEL, "prompt": "a " * (MAX_CONTEXT // 2 - 8), "return_token_strs": True}


def many_tokens(ground: Ground) -> dict[str, object]:
    return {"model": MODEL, "tokens": [1] * (MOST // 3)}


_p = partial(Harm, "prompts")
_body = partial(Harm, "prompts", right=TURNED_AWAY)
_t = partial(Harm, "tokenize")

ATTACKS = (
    *map(hard_prompt, HARD),
    _p("prompt-empty", complete({"prompt": ""}), "CVE-2024-8768", in_short=True),
    _p("prompt-empty-list", complete({"prompt": []}), "CVE-2024-8768"),
    _p("prompt-empty-tokens", complete({"prompt": [[]]}), "CVE-2024-8768"),
    _p("prompt-tokens-out-of-range", complete({"prompt": [2**31, 2**63, 10**40, -1]}), "vllm-project/vllm#13175"),
    _p("prompt-tokens-too-large-by-one", complete({"prompt": [49152, 259]})),
    _p("prompt-mixed", complete({"prompt": [1, "a", [2], None, True, 1.5]})),
    _p("prompt-surrogates", complete({"prompt": "\ud800\udfff\udc00" * 100})),
    _p("prompt-number", complete({"prompt": 5})),
    _p("prompts-with-n", complete({"prompt": ["a"] * 128, "n": 128})),
    _p("prompt-tokens-huge-ids", complete({"prompt": [10**30] * 100_000})),
    _body("prompt-of-objects", list_of("{}"), in_short=True),
    _body("prompt-of-strings", list_of('""')),
    _body("prompt-of-lists", list_of("[]")),
    _body("prompt-of-tokens", list_of("1")),
    _body("prompt-of-floats", list_of("1.0")),
    _body("prompt-of-nulls", list_of("null")),
    _body("prompt-deep", raw(b'{"prompt": ' + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}")),
    _body("body-not-json", raw(b"\xff" * 1_000_000)),
    _body("body-deep-objects", raw(b'{"a":' * 700_000)),
    _body("body-huge-integer", raw(b'{"max_tokens": ' + b"9" * 4_000_000 + b"}")),
    _body("body-escapes", raw(b'{"prompt": "' + b"\\u0000" * 690_000 + b'"')),
    _body("messages-of-objects", list_of("{}", "messages", CHATS), in_short=True),
    _body("messages-many", list_of('{"role":"user","content":""}', "messages", CHATS)),
    _body("message-parts-many", post(CHATS, parts)),
    _p("chat-template-as-text", shoot(chats), "GHSA-6fvq-23cw-5628"),
    _t("tokenize-strings-4-mib", tokenize("a b " * (MOST // 4), 10), load=4, in_short=True),
    _t("tokenize-hard-texts", shoot(tokenize_hard, at_once=len(HARD)), load=4),
    _t("tokenize-just-below", post(TOKENIZE, just_below, 64), load=8),
    _t("detokenize-many", post(DETOKENIZE, many_tokens, 6), load=4, in_short=True),
    _t("detokenize-odd", shoot(detokenize_odd)),
    _t("tokenize-odd", shoot(tokenize_odd), "GHSA-69j4-grxj-j64p"),
)
