"""Pydantic AI: an agent whose output has a type."""

import sys
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    """A city. Without other fields: the tiny model would never end with them."""

    model_config = ConfigDict(extra="forbid")
    name: Literal["Paris", "Rome"]


model = OpenAIChatModel("tiny", provider=OpenAIProvider(base_url=f"{sys.argv[1]}/v1", api_key="none"))
agent = Agent(model, output_type=City, model_settings={"max_tokens": 200, "parallel_tool_calls": False}, retries=0)
result = agent.run_sync("Which city?")
assert isinstance(result.output, City)
assert result.usage
