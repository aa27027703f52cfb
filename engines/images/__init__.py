"""Images of prompts: what a model's files say of them, how they are cut, and what of them no engine can compute."""
