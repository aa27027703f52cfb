"""Formats of model files: GGUF, safetensors, Hugging Face configurations."""
