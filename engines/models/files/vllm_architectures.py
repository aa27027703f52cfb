"""Decoders of vLLM 0.32 that keep K and V of each layer alike, by the classes that ``config.json`` names.

From its registry of models for text, without those of latent attention, of state spaces and of several kinds of heads:
their KV cannot be handed over in blocks of one shape. Of models that see images, those that `engines.images` knows.
"""

VLLM_ARCHITECTURES = frozenset((
    "AfmoeForCausalLM", "ApertusForCausalLM", "ArceeForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM",
    "BloomForCausalLM", "ChatGLMForConditionalGeneration", "ChatGLMModel", "Cohere2ForCausalLM",
    "Cohere2MoeForCausalLM", "CohereForCausalLM", "CwmForCausalLM", "DbrxForCausalLM", "DeciLMForCausalLM",
    "Ernie4_5ForCausalLM", "Ernie4_5_MoeForCausalLM", "Exaone4ForCausalLM", "ExaoneForCausalLM",
    "ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM", "FalconForCausalLM", "FlexOlmoForCausalLM", "GPT2LMHeadModel",
    "GPTBigCodeForCausalLM", "GPTJForCausalLM", "GPTNeoXForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM",
    "GemmaForCausalLM", "Glm4ForCausalLM", "Glm4MoeForCausalLM", "GlmForCausalLM", "GptOssForCausalLM",
    "GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSWAForCausalLM", "GraniteMoeSharedForCausalLM",
    "GraniteSWAForCausalLM", "HYV3ForCausalLM", "HrmTextForCausalLM", "HunYuanDenseV1ForCausalLM",
    "HunYuanMoEV1ForCausalLM", "HyperCLOVAXForCausalLM", "IQuestCoderForCausalLM",
    "Idefics3ForConditionalGeneration", "IQuestLoopCoderForCausalLM",
    "InternLM2ForCausalLM", "InternLM3ForCausalLM", "Jais2ForCausalLM", "K2HorizonForCausalLM", "LLaMAForCausalLM",
    "LagunaForCausalLM", "Llama4ForCausalLM", "LlamaForCausalLM", "MellumForCausalLM", "MiMoForCausalLM",
    "MiniCPMForCausalLM", "MiniMaxM2ForCausalLM", "Ministral3ForCausalLM", "MistralForCausalLM",
    "MistralLarge3ForCausalLM", "MixtralForCausalLM", "MuseGlimmerForCausalLM", "NanbeigeForCausalLM",
    "NemotronForCausalLM", "OPTForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoForCausalLM",
    "OlmoeForCausalLM", "OrionForCausalLM", "Param2MoEForCausalLM", "Phi3ForCausalLM", "PhiForCausalLM",
    "PhiMoEForCausalLM", "Plamo3ForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "Rnj1ForCausalLM", "SeedOssForCausalLM", "SmolLM3ForCausalLM",
    "SmolVLMForConditionalGeneration", "SolarForCausalLM",
    "StableLmForCausalLM", "Starcoder2ForCausalLM", "Step1ForCausalLM", "Step3TextForCausalLM", "Step3p5ForCausalLM",
    "TeleChat2ForCausalLM", "TeleChat3ForCausalLM", "TeleFLMForCausalLM", "VaultGemmaForCausalLM",
))  # fmt: skip
