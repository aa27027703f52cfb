"""Trains the byte-level Llama that the repository ships, and writes it as a model folder with its card.

    python -m bench.models.byte_llama --out DIR [--steps 2400] [--threads 1] [--seed 0]

It learns from text that comes with Python (`bench.models.byte_llama.text`). The same seed, Python, torch and number of
threads give the same weights. Most steps have short sequences, which are cheaper, and some whole contexts, from the
start on.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from bench.harness.arguments import script_parser
from bench.harness.jobs import progress_bar
from bench.models.byte_llama.card import Figures, card
from bench.models.byte_llama.folder import write_folder
from bench.models.byte_llama.muon import Muon
from bench.models.byte_llama.network import BEGIN, END, ByteLlama, Shape
from bench.models.byte_llama.text import Corpus, standard_library

STEP_TOKENS = 2048
SHORT, LONG_EVERY = 256, 4  # tokens of a sequence; each fourth step has whole contexts
WARM_UP, DECAY = 0.05, 0.5  # of the steps: rates rise at first, and fall to nothing in the end
MUON_RATE, ADAM_RATE = 2e-3, 3e-3
STORED = torch.float16
SAMPLE = b"Return the"


@dataclass(frozen=True, slots=True)
class Stream:
    """All training documents in one row of tokens, and where each begins."""

    tokens: Tensor
    starts: Tensor

    @classmethod
    def of(cls, documents: Sequence[bytes], generator: torch.Generator) -> "Stream":
        order = torch.randperm(len(documents), generator=generator).tolist()
        pieces = [torch.tensor([BEGIN, *documents[index], END]) for index in order]
        lengths = torch.tensor([len(piece) for piece in pieces])
        return cls(torch.cat(pieces), lengths.cumsum(0) - lengths)

    def rows(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        """``[count, length + 1]``: half of them from the beginning of a document, half from anywhere."""
        last = len(self.tokens) - length - 1
        anywhere = torch.randint(last, (count,), generator=generator)
        begins = self.starts[torch.randint(len(self.starts), (count,), generator=generator)].clamp(max=last)
        begin = torch.where(torch.arange(count) % 2 == 0, begins, anywhere)
        return self.tokens[begin[:, None] + torch.arange(length + 1)]


def train(network: ByteLlama, shape: Shape, stream: Stream, num_steps: int, generator: torch.Generator) -> None:
    """Take ``num_steps`` steps, and show how far they are."""
    matrices = [weight for name, weight in network.model.layers.named_parameters() if weight.dim() == 2]
    others = [weight for weight in network.parameters() if all(weight is not matrix for matrix in matrices)]
    muon, adam = Muon(matrices), torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    with progress_bar() as progress:
        for step in progress.track(range(num_steps), description="training"):
            length = shape.context if step % LONG_EVERY == LONG_EVERY - 1 else SHORT
            rows = stream.rows(STEP_TOKENS // length, length, generator)
            loss = functional.cross_entropy(network(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            rate = rate_at(step / num_steps)
            for group in adam.param_groups:
                group["lr"] = ADAM_RATE * rate
            adam.step()
            adam.zero_grad()
            muon.step(MUON_RATE * rate)


def rate_at(done: float) -> float:
    """Share of the full rates after that fraction of the steps."""
    return min(1.0, (done + 1e-3) / WARM_UP, (1 - done) / DECAY)


@torch.inference_mode()
def held_out_bits(network: ByteLlama, documents: Sequence[bytes], context: int) -> float:
    """Bits per byte. Each document starts anew, and so does each part of one that is longer than the context."""
    size = context - 1
    parts = [one[i : i + size] for one in documents for i in range(0, len(one), size)]
    return sum(_bits(network, part) for part in parts) / sum(map(len, parts))


def _bits(network: ByteLlama, part: bytes) -> float:
    tokens = torch.tensor([BEGIN, *part])
    losses = functional.cross_entropy(network(tokens[None, :-1])[0], tokens[1:], reduction="none")
    return float(losses.double().sum()) / math.log(2)


@torch.inference_mode()
def continuation(network: ByteLlama, prompt: bytes, num_bytes: int) -> str:
    """Greedy."""
    tokens = [BEGIN, *prompt]
    while len(tokens) <= len(prompt) + num_bytes and tokens[-1] != END:
        tokens.append(int(network(torch.tensor([tokens]))[0, -1].argmax()))
    return bytes(token for token in tokens if token < BEGIN).decode(errors="replace")


def figures_of(network: ByteLlama, shape: Shape, corpus: Corpus) -> Figures:
    exact = held_out_bits(network, corpus.held_out, shape.context)
    sample = continuation(network, SAMPLE, 160)
    network.to(STORED).float()
    return Figures(
        num_parameters=sum(weight.numel() for weight in network.parameters()),
        num_training=len(corpus.training),
        training_bytes=sum(map(len, corpus.training)),
        training_sha256=hashlib.sha256(b"\0".join(corpus.training)).hexdigest(),
        num_held_out=len(corpus.held_out),
        held_out_bytes=sum(map(len, corpus.held_out)),
        float32_bits=exact,
        stored_bits=held_out_bits(network, corpus.held_out, shape.context),
        short_context=SHORT,
        short_bits=held_out_bits(network, corpus.held_out, SHORT),
        prompt=SAMPLE.decode(),
        sample=sample,
    )


def main() -> None:
    parser = script_parser("bench.models.byte_llama", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    corpus, shape = standard_library(), Shape()
    network = ByteLlama(shape)
    train(network, shape, Stream.of(corpus.training, generator), arguments.steps, generator)
    figures = figures_of(network, shape, corpus)
    write_folder(arguments.out, network, shape, STORED)
    settings = f"--steps {arguments.steps} --threads {arguments.threads} --seed {arguments.seed}"
    command = f"python -m bench.models.byte_llama {settings}"
    (arguments.out / "README.md").write_text(card(figures, shape, STORED, command))
    print(figures)
