"""Names the ranks that places of adapters may have. Rules of topologies read it, so it loads nothing."""

from typing import Final

RANK_OPTION: Final = "max_lora_rank"  # of vLLM's
RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that places may have
