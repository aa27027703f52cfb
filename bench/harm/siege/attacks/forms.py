"""Forms of answers that are short to write and long to follow, and numbers at every edge: what takes a program."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.harm.harm import Harm
from bench.harm.siege.attack import Requests, Run, shoot
from bench.harm.siege.ground import COMPLETIONS, Ground

INTEGER = {"type": "integer"}
# As text: JSON's writers make none of these.
EDGES = (
    "1e-323", "1e-40", "1.5e-45", "-0.0", "1e308", "1e309", "-1e309", "NaN", "Infinity", "-Infinity",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 400, "0.1e-400",
    "true", '"1"', "[]", "{}", "1e-7", "2.0000000000000004",
)  # fmt: skip
NUMBERS = (
    "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "max_tokens", "top_k", "seed", "min_tokens", "n", "logprobs",
)  # fmt: skip


def form(**fields: Any) -> Run:
    return shoot(lambda ground: [ground.completion({"structured_outputs": fields})])


def doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the next: 2^levels paths."""
    refs = [{"$ref": f"#/$defs/d{level}"} for level in range(levels + 1)]
    pairs = [{"type": "object", "properties": {"a": ref, "b": ref}, "required": ["a", "b"]} for ref in refs]
    return {**refs[0], "$defs": {f"d{level}": [*pairs[1:], INTEGER][level] for level in range(levels + 1)}}


def any_of(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = INTEGER
    for level in range(levels):
        members = {"type": "object", "properties": {f"p{level}": schema}}
        schema = {"anyOf": [members, {"type": "array", "items": schema}]}
    return schema


def rules(count: int, pattern: str) -> str:
    """A grammar in which each rule leads to the next."""
    return "\n".join(
        ["start: r0", *(f"r{n}: {pattern.format(n=n, next=n + 1)}" for n in range(count)), f'r{count}: "a"']
    )


def many_choices(ground: Ground) -> list[bytes]:
    """Each grammar is good, and no two are the same: a cache without a bound grows."""
    salt = ground.random.randrange(10**9)
    forms = [{"choice": [f"w{salt}x{n}x{k}" for k in range(300)]} for n in range(120)]
    return [ground.completion({"max_tokens": 1, "structured_outputs": form}) for form in forms]


def edges(name: str) -> Requests:
    """One parameter at every edge."""

    def requests(ground: Ground) -> Iterator[bytes]:
        fields = ground.fields({"temperature": 1.0, "max_tokens": 2})
        fields.pop(name, None)
        head = json.dumps(fields)[:-1]
        return (ground.post(COMPLETIONS, f'{head}, "{name}": {edge}}}'.encode()) for edge in EDGES)

    return requests


_g = partial(Harm, "grammar")
_s = partial(Harm, "schema")
MANY = {"type": "object", "properties": {f"k{n}": INTEGER for n in range(1500)}}

ATTACKS = (
    _g("lark-doubling", form(grammar=rules(60, "r{next} r{next}"))),
    _g("lark-many-rules", form(grammar=rules(1500, '"x{n}" | r{next}'))),
    _g("choice-of-prefixes", form(choice=["a" * n for n in range(1, 250)])),
    _g("grammars-in-turn", shoot(many_choices, at_once=4), "GHSA-389x-67px-mjg3", load=4),
    _s("defs-doubling", form(json=doubling(40))),
    _s("any-of-exponential", form(json=any_of(12))),
    _s("optional-properties", form(json=MANY), "dottxt-ai/outlines#680"),
    *(
        Harm("sampling", f"edges-of-{name}", shoot(edges(name)), in_short=name == "repetition_penalty")
        for name in NUMBERS
    ),
)
