"""Runs Vidur's simulator once, for `bench.peers.vidur_speed`.

Run as a file by an interpreter that has vidur: STEPS, then the arguments of ``vidur.main``. STEPS is a JSON object with
the milliseconds of a step: ``fixed``, ``per_token`` that it computes, and ``per_context_token`` of its decodes. They
stand for the profiles that Vidur would fetch. Prints one JSON object: requests, CPU seconds, simulated seconds.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping

LAYERS = 80  # of Llama 2 70B: what is predicted is the time of a layer
LAYER = "mlp_up_proj"  # that has the time of all of a layer but its attention
NOTHING = (
    "attn_pre_proj",
    "attn_post_proj",
    "mlp_down_proj",
    "mlp_act",
    "attn_rope",
    "attn_kv_cache_save",
    "input_layernorm",
    "post_attention_layernorm",
    "add",
    "all_reduce",
    "send_recv",
    "attn_prefill",
)


class Times:
    """Predictions of one operation, by whatever key Vidur asks with."""

    def __init__(self, of: Callable[..., float]) -> None:
        self._of = of

    def __getitem__(self, key: tuple[int, ...]) -> float:
        return self._of(*key)


def predictions(steps: Mapping[str, float]) -> dict[str, Times]:
    found = {name: Times(lambda *_: 0.0) for name in NOTHING}
    found[LAYER] = Times(lambda num_tokens: (steps["fixed"] + steps["per_token"] * num_tokens) / LAYERS)
    found["attn_decode"] = Times(
        lambda num_requests, context: steps["per_context_token"] * num_requests * context / LAYERS
    )
    return found


def main() -> None:
    steps = json.loads(sys.argv.pop(1))
    from vidur.config import SimulationConfig
    from vidur.execution_time_predictor.sklearn_execution_time_predictor import SklearnExecutionTimePredictor
    from vidur.simulator import Simulator
    from vidur.utils.random import set_seeds

    SklearnExecutionTimePredictor._load_predictions_from_hf = lambda _: predictions(steps)
    config = SimulationConfig.create_from_cli_args()
    set_seeds(config.seed)
    simulator = Simulator(config)
    started = time.process_time()
    simulator.run()
    cpu_s = time.process_time() - started
    sys.stdout.write(json.dumps({"cpu_s": cpu_s, "simulated_s": simulator._time}) + "\n")


if __name__ == "__main__":
    main()
