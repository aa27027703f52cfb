"""Random bodies of chats as clients send them: every role, calls and their results, parts, reasoning, tools."""

import json
from random import Random
from typing import Any

WORDS = (
    "Hello", "naïve café", "日本語テスト", "🦜🌍", "a\nb\n\nc", "  blanks  ", "<b>&amp;\"quoted\"</b>",
    "it's {{ braces }}",
    "x" * 40, "\\n is no line", "\t", "</think> early", "Ω≈ç√", "{\"a\": 1}", "١٢٣", "line\r\nend",
)  # fmt: skip
KEYS = ("city", "größe", "a b", "nested_key", "x", "unit-of", "名前")
NAMES = ("get_weather", "add", "search.web", "do-it", "f_1")


def random_chat(random: Random) -> dict[str, Any]:
    """Return the body of a chat. Most are as models know them; some have roles in any order."""
    tools = _tools(random) if random.random() < 0.4 else None
    messages = _conversation(random, tools) if random.random() < 0.9 else _disorder(random, tools)
    body: dict[str, Any] = {"messages": messages}
    if tools:
        body["tools"] = tools
    if random.random() < 0.1:
        body["documents"] = [
            {"title": text(random), "text": text(random), "id": n} for n in range(random.randint(1, 2))
        ]
    if random.random() < 0.3:
        body["chat_template_kwargs"] = _parameters(random)
    if _may_continue(messages[-1]) and random.random() < 0.5:
        body["continue_final_message"] = True
        body["add_generation_prompt"] = random.choice((None, False))
    elif random.random() < 0.3:
        body["add_generation_prompt"] = random.choice((True, False))
    return body


def text(random: Random, most: int = 4) -> str:
    return " ".join(random.choice(WORDS) for _ in range(random.randint(1, most)))


def value(random: Random, depth: int = 2) -> Any:
    """Any value of JSON."""
    kind = random.randint(0, 6 if depth else 4)
    if kind == 5:
        return [value(random, depth - 1) for _ in range(random.randint(0, 3))]
    if kind == 6:
        return {random.choice(KEYS): value(random, depth - 1) for _ in range(random.randint(0, 3))}
    return (None, random.random() < 0.5, random.choice((0, -7, 2**70)), random.choice((1.5, 1e22, -0.0)), text(random))[
        kind
    ]


def arguments(random: Random) -> dict[str, Any]:
    return {random.choice(KEYS): value(random) for _ in range(random.randint(0, 3))}


def _conversation(random: Random, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    messages = []
    if random.random() < 0.5:
        messages.append({"role": random.choice(("system", "system", "developer")), "content": _content(random)})
    for _ in range(random.randint(0, 2)):
        messages.append(_user(random))
        if tools and random.random() < 0.5:
            messages += _calls_and_results(random, tools)
        messages.append(_assistant(random))
    messages.append(_user(random))
    if tools and random.random() < 0.3:
        messages += _calls_and_results(random, tools)
    elif random.random() < 0.15:
        messages.append(_assistant(random))
    return messages


def _disorder(random: Random, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for _ in range(random.randint(1, 4)):
        kind = random.randint(0, 3)
        if kind == 3 and tools:
            messages += _calls_and_results(random, tools)[: random.randint(1, 2)]
        else:
            messages.append((_user(random), _assistant(random), {"role": "system", "content": text(random)})[kind % 3])
    return messages


def _user(random: Random) -> dict[str, Any]:
    message = {"role": "user", "content": _content(random)}
    return message | ({"name": "Ada"} if random.random() < 0.1 else {})


def _assistant(random: Random) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text(random)}
    if random.random() < 0.05:
        message["content"] = ""
    if random.random() < 0.3:
        message[random.choice(("reasoning_content", "reasoning_content", "reasoning", "thinking"))] = text(random)
    if random.random() < 0.05:
        message["prefix"] = True
    return message


def _calls_and_results(random: Random, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = [f"call{random.randrange(10**5):05d}" for _ in range(random.choice((1, 1, 1, 2, 3)))]
    names = [random.choice(tools)["function"]["name"] for _ in ids]
    calls = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments(random), ensure_ascii=random.random() < 0.5)},
        }
        for id_, name in zip(ids, names, strict=True)
    ]
    caller: dict[str, Any] = {"role": "assistant", "tool_calls": calls}
    if random.random() < 0.8:
        caller["content"] = random.choice((None, "", text(random)))
    if random.random() < 0.3:
        caller["reasoning_content"] = text(random)
    results = [
        {"role": "tool", "tool_call_id": id_, "content": text(random)}
        | ({"name": name} if random.random() < 0.5 else {})
        for id_, name in zip(ids, names, strict=True)
    ]
    return [caller, *results]


def _content(random: Random) -> str | list[dict[str, str]]:
    if random.random() < 0.15:
        return [{"type": "text", "text": text(random)} for _ in range(random.randint(1, 2))]
    return text(random)


def _tools(random: Random) -> list[dict[str, Any]]:
    return [_tool(random, name) for name in random.sample(NAMES, random.randint(1, 3))]


def _tool(random: Random, name: str) -> dict[str, Any]:
    properties = {
        key: {"type": random.choice(("string", "integer", "boolean")), "description": text(random)}
        | ({"enum": ["a", "ß"]} if random.random() < 0.2 else {})
        for key in random.sample(KEYS, random.randint(0, 3))
    }
    if random.random() < 0.3:
        properties["inner"] = {
            "type": "object",
            "properties": {"deep": {"type": "array", "items": {"type": "number", "maximum": 2**64}}},
            "required": ["deep"],
        }
    function: dict[str, Any] = {"name": name, "description": text(random)}
    if random.random() < 0.9:
        required = [key for key in properties if random.random() < 0.5]
        function["parameters"] = {"type": "object", "properties": properties, "required": required}
    if random.random() < 0.1:
        function["strict"] = True
    return {"type": "function", "function": function}


def _parameters(random: Random) -> dict[str, Any]:
    known = {
        "enable_thinking": random.random() < 0.5,
        "thinking": random.random() < 0.5,
        "date_string": "26 Jul 2024",
        "reasoning_effort": random.choice(("low", "high")),
        "unknown": {"a": [1, None]},
    }
    return {name: known[name] for name in random.sample(list(known), random.randint(1, 2))}


def _may_continue(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "assistant" and message.get("content") and not message.get("tool_calls"))
