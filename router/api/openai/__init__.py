"""The OpenAI API: bodies, checks, prompts, answers and streams."""
