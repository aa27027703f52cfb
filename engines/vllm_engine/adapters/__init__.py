"""LoRA adapters on vLLM: its places for them, and products on CPUs that keep rows apart."""
