"""Instructor: an answer that is a pydantic model, by a tool and by a JSON schema."""

import sys
from typing import Literal

import instructor
import openai
from pydantic import BaseModel, ConfigDict


class City(BaseModel):
    """A city. Without other fields: the tiny model would never end with them."""

    model_config = ConfigDict(extra="forbid")
    name: Literal["Paris", "Rome"]


for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none"), mode=mode)
    messages = [{"role": "user", "content": "Which city?"}]
    city = client.create(model="tiny", response_model=City, messages=messages, max_tokens=200, max_retries=0)
    assert isinstance(city, City), mode
