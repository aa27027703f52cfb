"""Anthropic's client: a message that calls a tool, with the streaming helper."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none")
schema = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
asked = {
    "model": "tiny",
    "max_tokens": 200,
    "tools": [{"name": "weather", "description": "The weather of a city", "input_schema": schema}],
}
messages = [{"role": "user", "content": "Weather in Paris?"}]
choice = {"type": "any", "disable_parallel_tool_use": True}
with client.messages.stream(**asked, messages=messages, tool_choice=choice) as stream:
    message = stream.get_final_message()
calls = [block for block in message.content if block.type == "tool_use"]
assert message.stop_reason == "tool_use", message
assert calls[0].input["city"] in ("Paris", "Rome")
results = [{"type": "tool_result", "tool_use_id": call.id, "content": "Sunny"} for call in calls]
messages += [
    {"role": "assistant", "content": [block.to_dict() for block in message.content]},
    {"role": "user", "content": results},
]
counted = client.messages.count_tokens(model="tiny", messages=messages, tools=asked["tools"])
last = client.messages.create(**asked | {"max_tokens": 8}, messages=messages, tool_choice={"type": "none"})
used = last.usage
assert used.input_tokens + used.cache_read_input_tokens <= counted.input_tokens
error = None
try:
    client.messages.create(**asked | {"model": "other"}, messages=messages)
except anthropic.NotFoundError as raised:
    error = raised
assert error is not None
assert error.body["error"]["type"] == "not_found_error"
