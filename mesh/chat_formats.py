"""Names of the ways in which models write calls of tools and reasoning, as topologies name them."""

from typing import Final

AUTO_FORMAT: Final = "auto"  # the model's chat template tells
NO_FORMAT: Final = "none"
TOOL_FORMATS: Final = (
    "auto",
    "hermes",
    "phi",
    "granite",
    "llama_json",
    "pythonic",
    "mistral",
    "mistral_apart",
    "qwen_xml",
    "seed",
    "minimax",
    "glm",
    "deepseek",
    "deepseek_v3_1",
    "kimi",
    "functionary",
    "functools",
    "harmony",
)
REASONING_FORMATS: Final = ("auto", "none", "think", "mistral", "seed", "harmony")
