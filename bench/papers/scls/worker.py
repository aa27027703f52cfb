"""A static batch by DeepSpeed-inference beside the same by transformers, on one core.

    python -m bench.papers.scls.worker [--model REFERENCE] [--rounds N] [--json FILE]

The interpreter must have DeepSpeed, which this project does not need. `init_inference` is tried with DeepSpeed's
kernels and without. Without them a batch is `generate` of what it returns, and of the model itself, in turns. Times are
of this process on the CPU, so others take none of them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import turned
from bench.harness.paired import ratio
from bench.harness.tables import make_console, print_table
from engines.models.store import prepared_dir
from engines.transformers_engine.executor import load_model
from engines.transformers_engine.generation import PAD, left_padded
from mesh.errors import UserError
from mesh.extras import missing_extra
from mesh.show.progress import working

BATCHES = ((1, 32), (4, 32), (4, 128))  # rows, and tokens of the longest prompt
NEW_TOKENS = 16
ORDINARY = range(100, 228)  # tokens of any vocabulary
Times = Mapping[str, list[float]]  # CPU seconds of each round, by who generated


def measured(generators: Mapping[str, Callable[..., object]], rounds: int) -> dict[tuple[int, int], Times]:
    """Time each batch in turns, after a round that warms up."""
    found: dict[tuple[int, int], Times] = {batch: {name: [] for name in generators} for batch in BATCHES}
    with working("batches", (1 + rounds) * len(BATCHES)) as shown:
        for number in range(1 + rounds):
            for batch, times in found.items():
                asked = question(*batch)
                for name in turned([*generators], number):
                    began_s = time.process_time()
                    generators[name](**asked)
                    times[name].extend([time.process_time() - began_s] * bool(number))
                shown.advance()
    return found


def question(num_rows: int, longest: int) -> dict[str, Any]:
    """Return what ``generate`` is to be called with. Prompts are padded: each is shorter than the one before."""
    random = Random(num_rows)
    prompts = [random.choices(ORDINARY, k=longest * (num_rows - row) // num_rows) for row in range(num_rows)]
    ids, mask = left_padded(prompts, torch.device("cpu"))
    tokens = {"min_new_tokens": NEW_TOKENS, "max_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": PAD}
    return {"inputs": ids, "attention_mask": mask, **tokens}


def rows(found: Mapping[tuple[int, int], Times]) -> list[Sequence[str]]:
    return [
        (str(num_rows), str(longest), f"{min(ours):.2f}", f"{min(theirs):.2f}", ratio(ours, theirs).text())
        for (num_rows, longest), times in found.items()
        for theirs, ours in [times.values()]
    ]


def said_by(begin: Callable[[object], object], folder: Path) -> str:
    """Return what becomes of a model that this is to serve."""
    try:
        begin(load_model(folder, "float32", "cpu"))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it begins"


def main() -> None:
    parser = script_parser("bench.papers.scls.worker", __doc__, model=True, rounds=5, json=True)
    options = parser.parse_args()
    with errors_in_a_line():
        if missing_extra("", "", "deepspeed"):
            raise UserError("this interpreter has no deepspeed: pip install deepspeed")
        import deepspeed

        torch.set_num_threads(1)
        folder, told = prepared_dir(options.model), make_console()
        injected = partial(deepspeed.init_inference, dtype=torch.float32, replace_with_kernel_inject=True)
        told.print(f"init_inference with its kernels: {said_by(injected, folder)}", highlight=False)
        model = load_model(folder, "float32", "cpu")
        served = deepspeed.init_inference(model, dtype=torch.float32)
        same = "the same" if served.module is model else "another"
        told.print(f"init_inference without: the model is {same}, {type(served.module).__name__}", highlight=False)
        generators = {"transformers": model.generate, "DeepSpeed": served.generate}
        found = measured(generators, options.rounds)
    headings = ("tokens of the longest", "DeepSpeed, CPU s", "transformers, CPU s", "DeepSpeed / transformers")
    print_table(f"{NEW_TOKENS} new tokens a row", ("rows",), headings, rows(found))
    write_json(options.json, [{"batch": batch, **times} for batch, times in found.items()])


if __name__ == "__main__":
    main()
