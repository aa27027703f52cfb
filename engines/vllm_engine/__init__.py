"""vLLM as an executor: its model runner computes the batches of our scheduler, its KV cache lies in our pages."""
