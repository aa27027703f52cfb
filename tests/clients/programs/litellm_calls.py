"""LiteLLM as a client: chats, a stream, Anthropic's messages."""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks for one when it is imported

import litellm

url = sys.argv[1]
asked = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "api_key": "none"}
whole = litellm.completion("openai/tiny", api_base=f"{url}/v1", **asked)
assert whole.usage.completion_tokens > 0
chunks = list(litellm.completion("openai/tiny", api_base=f"{url}/v1", stream=True, **asked))
assert chunks[-1].choices[0].finish_reason
message = litellm.completion("anthropic/tiny", api_base=f"{url}/v1/messages", **asked)
assert message.usage.completion_tokens > 0
function = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
tools = [{"type": "function", "function": function}]
called = litellm.completion(
    "openai/tiny",
    api_base=f"{url}/v1",
    tools=tools,
    tool_choice="required",
    parallel_tool_calls=False,
    **asked | {"max_tokens": 200},
)
assert called.choices[0].message.tool_calls[0].function.name == "weather"
