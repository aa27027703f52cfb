"""LoRA adapters that are added while the mesh runs."""
