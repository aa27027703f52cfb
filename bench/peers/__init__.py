"""The mesh beside other systems: vLLM, llama.cpp, transformers and routers."""
