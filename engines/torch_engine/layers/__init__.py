"""Layers of decoders: attention, products, norms, MLPs and experts, rotary embeddings."""
