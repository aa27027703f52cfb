"""OpenAI's client: a chat that calls a tool, with the streaming helper."""

import sys
from typing import Literal

import openai
from pydantic import BaseModel


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Rome"]


client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none")
messages = [{"role": "user", "content": "Weather in Paris?"}]
tools = [openai.pydantic_function_tool(Weather)]
asked = {"model": "tiny", "tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
with client.chat.completions.stream(**asked, messages=messages) as stream:
    kinds = {event.type for event in stream}
    message = stream.get_final_completion().choices[0].message
assert "tool_calls.function.arguments.delta" in kinds, kinds
call = message.tool_calls[0]
assert isinstance(call.function.parsed_arguments, Weather)
messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny"}]
ends = {"structured_outputs": {"choice": ["Sunny", "Rainy"]}}  # the helper raises where an answer is cut off
with client.chat.completions.stream(model="tiny", messages=messages, extra_body=ends) as stream:
    text = "".join(event.delta for event in stream if event.type == "content.delta")
    assert text == stream.get_final_completion().choices[0].message.content
first = client.responses.create(model="tiny", input="Hello", max_output_tokens=8)
second = client.responses.create(model="tiny", input="Go on", max_output_tokens=8, previous_response_id=first.id)
assert second.usage.input_tokens > first.usage.input_tokens
client.responses.delete(first.id)
