"""The project's own engine: decoders of many kinds in torch over a paged KV cache, on CPU and CUDA."""
