"""LoRA adapters: their folders, and which of them an engine holds. The products are the backends'."""
