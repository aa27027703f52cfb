"""LangChain: a bound tool, a structured output, a stream."""

import sys
from typing import Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict

model = ChatOpenAI(model="tiny", base_url=f"{sys.argv[1]}/v1", api_key="none", max_tokens=200)


@tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return f"Sunny in {city}"


class City(BaseModel):
    """A city. Without other fields: the tiny model would never end with them."""

    model_config = ConfigDict(extra="forbid")
    name: Literal["Paris", "Rome"]


asked = HumanMessage("Weather in Paris?")
message = model.bind_tools([weather], tool_choice="required", strict=True, parallel_tool_calls=False).invoke([asked])
results = [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in message.tool_calls]
assert results
model.bind(max_tokens=8).invoke([asked, message, *results])
assert isinstance(model.with_structured_output(City, method="json_schema").invoke("Which city?"), City)
assert isinstance(model.with_structured_output(City, method="function_calling").invoke("Which city?"), City)
assert list(model.bind(max_tokens=8).stream("Hello"))
