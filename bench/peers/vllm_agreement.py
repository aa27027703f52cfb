"""Greedy answers of a running mesh of vLLM engines, beside those of vLLM alone and of the torch engine.

    python -m bench.peers.vllm_agreement --url http://127.0.0.1:8000 --vllm-python PATH [--prompts 12] [--tokens 48]

Prompts are pieces of the text of `bench.engine.int8_quality`; float32 everywhere. vLLM alone is one engine with its own
scheduler, under ``PATH``. Differences are counted by answer, with the first token at which they part.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
from tokenizers import Tokenizer

from bench.engine.int8_quality import text
from bench.engine.under_test import EngineUnderTest, add_model_argument
from bench.harness.arguments import script_parser
from engines.models.store import prepared_dir
from engines.scheduling.batch import Chunk, Draw
from mesh.wire.requests import Sampling

ALONE = """
import json, sys, vllm
folder, num_tokens, prompts = sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)
sampling = vllm.SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
llm = vllm.LLM(folder, dtype="float32", enforce_eager=True, skip_tokenizer_init=True, max_model_len=1024)
outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling)
print("ANSWERS" + json.dumps([output.outputs[0].token_ids for output in outputs]))
"""
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
ENVIRONMENT |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
ANSWER_S = 600.0
PROMPT_TOKENS = 40
GREEDY = Sampling(max_tokens=1, seed=0, temperature=0.0)


def of_mesh(url: str, prompts: Sequence[list[int]], num_tokens: int) -> list[str]:
    with httpx.Client(base_url=url, timeout=ANSWER_S) as client:
        model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        body = {"model": model, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
        headers = {"x-slo-ttft-ms": str(1000 * ANSWER_S), "x-slo-tpot-ms": str(1000 * ANSWER_S)}
        answers = [client.post("/v1/completions", json={**body, "prompt": one}, headers=headers) for one in prompts]
        return [answer.raise_for_status().json()["choices"][0]["text"] for answer in answers]


def of_vllm_alone(python: str, folder: Path, prompts: Sequence[list[int]], num_tokens: int) -> list[list[int]]:
    command = [python, "-c", ALONE, str(folder), str(num_tokens)]
    asked, environment = json.dumps(prompts), {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    if not lines:
        raise RuntimeError(f"vLLM alone gave no answers: {done.stderr.strip().splitlines()[-1:]}")
    answers: list[list[int]] = json.loads(lines[-1].removeprefix("ANSWERS"))
    return answers


def of_torch(folder: Path, prompts: Sequence[list[int]], num_tokens: int) -> list[list[int]]:
    engine = EngineUnderTest(folder, "float32", PROMPT_TOKENS + num_tokens)
    return [_generate(engine, prompt, num_tokens) for prompt in prompts]


def _generate(engine: EngineUnderTest, prompt: list[int], num_tokens: int) -> list[int]:
    tokens, computed = list(prompt), 0
    while len(tokens) < len(prompt) + num_tokens:
        draw = Draw(GREEDY, tokens, len(prompt), len(tokens))
        blocks = engine.blocks(0, PROMPT_TOKENS + num_tokens)
        [result] = engine.execute([Chunk("one", tokens[computed:], computed, blocks, draw)]).chunks
        computed = len(tokens)
        tokens.append(result.token or 0)
    return tokens[len(prompt) :]


def report(name: str, mine: Sequence[str], tokenizer: Tokenizer, theirs: Sequence[list[int]]) -> None:
    parted = []
    for number, (answer, tokens) in enumerate(zip(mine, theirs, strict=True)):
        if answer != _text(tokenizer, tokens):
            same = max(n for n in range(len(tokens) + 1) if answer.startswith(_text(tokenizer, tokens[:n])))
            parted.append(f"answer {number} from token {same} on")
    which = f": {', '.join(parted)}" if parted else ""
    print(f"mesh beside {name}: {len(parted)} of {len(mine)} answers differ{which}")


def _text(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    decoded: str = tokenizer.decode(tokens, skip_special_tokens=True)
    return decoded


def main() -> None:
    parser = script_parser("bench.peers.vllm_agreement", __doc__)
    add_model_argument(parser)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="gateway of a mesh that serves the model alone")
    parser.add_argument("--vllm-python", help="interpreter with vLLM; without, only torch is asked")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48, help="of each answer")
    arguments = parser.parse_args()
    folder, num_tokens = prepared_dir(arguments.model), arguments.tokens
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(text()).ids
    step = len(ids) // arguments.prompts
    prompts = [ids[number * step : number * step + PROMPT_TOKENS] for number in range(arguments.prompts)]
    mine = of_mesh(arguments.url, prompts, num_tokens)
    report("torch", mine, tokenizer, of_torch(folder, prompts, num_tokens))
    if arguments.vllm_python:
        report("vLLM alone", mine, tokenizer, of_vllm_alone(arguments.vllm_python, folder, prompts, num_tokens))


if __name__ == "__main__":
    main()
