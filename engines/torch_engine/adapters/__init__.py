"""LoRA adapters on the torch engine: each row of a batch has its own, or none."""
