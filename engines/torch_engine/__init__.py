"""The project's own engine: the Llama family in torch over a paged KV cache, on CPU and CUDA."""
