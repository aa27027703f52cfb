"""Layers of the Llama family: attention, products, norms, rotary embeddings."""
