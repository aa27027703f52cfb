"""Models on disk: references, cache, conversion, configurations, tokenizers. Imports neither torch nor transformers."""
