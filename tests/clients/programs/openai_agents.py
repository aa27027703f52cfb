"""OpenAI's Agents SDK: an agent that calls a tool, by responses and by chat completions."""

import asyncio
import sys
from typing import Literal

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)
called = []


@function_tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    called.append(city)
    return f"Sunny in {city}"


async def main():
    client = openai.AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none")
    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        agent = Agent(
            name="guide",
            instructions="Tell the weather.",
            tools=[weather],
            model=kind("tiny", client),
            model_settings=ModelSettings(tool_choice="required", max_tokens=200, parallel_tool_calls=False),
            tool_use_behavior="stop_on_first_tool",
        )
        called.clear()
        result = await Runner.run(agent, "Weather in Paris?")
        assert called, kind
        assert "Sunny" in result.final_output
        streamed = Runner.run_streamed(agent, "Weather in Rome?")
        async for _ in streamed.stream_events():
            pass
        assert "Sunny" in streamed.final_output


asyncio.run(main())
