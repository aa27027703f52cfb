"""What the bench of KV tiers makes of its runs, and what it asks vLLM for."""

from argparse import Namespace

from bench.engine.kv_tiers import Measured, rows
from bench.engine.tier_arms import vllm_options
from tests.models.tiny_llama import HEAD_DIM, KV_HEADS, LAYERS, write_tiny_model


def arm(name: str, elapsed_s: list[float], cpu_s: list[float]) -> Measured:
    tiers = {} if name == "off" else {"host": {"stored_blocks": 7, "loaded_blocks": 3}}
    return Measured(name, [[9.0], [0.5, 0.7], [9.0], [0.6, 0.8]], [0, 40, 0, 50], elapsed_s, cpu_s, [{"tiers": tiers}])


def test_an_arm_is_compared_with_the_first_one_turn_by_turn():
    off, both = (
        arm("off", [1.0, 4.0, 1.0, 1.0], [1.0, 2.0, 1.0, 1.0]),
        arm("both", [2.0, 2.0, 1.0, 1.0], [1.25, 2.0, 1.25, 1.25]),
    )
    assert list(rows([off, both], 2))[1] == (
        "both",
        "0.650",
        "1.000",
        "6.0",
        "1.000 (0.50 to 2.00)",
        "0.800",
        "90",
        "3",
        "7",
    )


def test_vllm_gets_kv_memory_for_as_many_tokens(tmp_path):
    token_bytes = 2 * LAYERS * KV_HEADS * HEAD_DIM * 4
    options = Namespace(model=str(write_tiny_model(tmp_path)), dtype="float32", pool=f"{7 * 32 * token_bytes}B")
    given = vllm_options(Namespace(**vars(options), first=64, turns=3, turn_tokens=16, answer=4))
    assert given[given.index("--num-gpu-blocks-override") + 1] == "8"  # and one that it never hands out
    assert given[given.index("--block-size") + 1] == "32"
    assert int(given[given.index("--max-model-len") + 1]) >= 64 + 2 * 16 + 4
