"""Trains the byte-level Llama that the repository ships, and writes it as a model folder.

    python -m tests.tools.byte_llama.training --out DIR [--steps 2400] [--threads 1] [--seed 0]

It learns from text that comes with Python (`tests.tools.byte_llama.text`). The same seed, Python, torch and number of
threads give the same weights. Most steps have short sequences, which are cheaper, and some whole contexts, from the
start on.
"""

import hashlib
import math
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from bench.harness.arguments import script_parser
from mesh.show.progress import working
from tests.tools.byte_llama.network import BEGIN, END, ByteLlama, Shape
from tests.tools.byte_llama.text import standard_library

MOMENTUM = 0.95
NEWTON_SCHULZ = 5, (3.4445, -4.7750, 2.0315)  # steps and coefficients of the iteration
STEP_TOKENS = 2048
SHORT, LONG_EVERY = 256, 4  # tokens of a sequence; each fourth step has whole contexts
WARM_UP, DECAY = 0.05, 0.5  # of the steps: rates rise at first, and fall to nothing in the end
MUON_RATE, ADAM_RATE = 2e-3, 3e-3
STORED = torch.float16
SHIPPED = Path(__file__).parents[3] / "deploy/models/byte-llama"


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


class Muon:
    """Muon (Jordan et al. 2024): steps in the direction of the momentum with all its singular values made one.

    For the matrices of the layers it needs about half the steps of AdamW. torch's own Muon works in bfloat16, which is
    slow on CPUs without it, and on one matrix at a time. Here matrices of one shape are stepped together.
    """

    def __init__(self, matrices: Iterable[Tensor]) -> None:
        by_shape = defaultdict(list)
        for matrix in matrices:
            by_shape[matrix.shape].append(matrix)
        self._groups = [(group, torch.zeros(len(group), *shape)) for shape, group in by_shape.items()]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take a step of root mean square ``rate`` with each matrix, and drop its gradient."""
        for matrices, momentum in self._groups:
            gradient = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
            momentum.lerp_(gradient, 1 - MOMENTUM)
            direction = orthogonal(gradient.lerp_(momentum, MOMENTUM))
            size = rate * max(direction.shape[-2:]) ** 0.5  # an orthogonal matrix has rows or columns of length one
            for matrix, own in zip(matrices, direction, strict=True):
                matrix.sub_(own, alpha=size)
                matrix.grad = None


def orthogonal(matrices: Tensor) -> Tensor:
    """``[n, rows, columns]`` with singular values near one (0.7 to 1.2)."""
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    steps, (a, b, c) = NEWTON_SCHULZ
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    out: Tensor = x.mT if is_tall else x
    return out


def train(network: ByteLlama, shape: Shape, stream: Stream, num_steps: int, generator: torch.Generator) -> None:
    """Take ``num_steps`` steps, and show how far they are."""
    matrices = [weight for name, weight in network.model.layers.named_parameters() if weight.dim() == 2]
    others = [weight for weight in network.parameters() if all(weight is not matrix for matrix in matrices)]
    muon, adam = Muon(matrices), torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    with working("training", num_steps) as shown:
        for step in range(num_steps):
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
            shown.advance()


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


def as_stored(network: ByteLlama) -> ByteLlama:
    """Round its weights, and nothing else, as the file does."""
    for weight in network.parameters():
        weight.data = weight.data.to(STORED).float()
    return network


def write_model(folder: Path, network: ByteLlama) -> None:
    """The shipped model's folder with the weights of this network, as they are stored."""
    shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    weights = {name: weight.to(STORED).contiguous() for name, weight in network.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def main() -> None:
    parser = script_parser("tests.tools.byte_llama.training", __doc__)
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
    write_model(arguments.out, network)
    bits = held_out_bits(as_stored(network), corpus.held_out, shape.context)
    print(f"{bits:.3f} bits per byte of {len(corpus.held_out)} documents that it has not read, as stored")
    sha256 = hashlib.sha256(b"\0".join(corpus.training)).hexdigest()
    print(f"it has read {len(corpus.training)} documents, SHA-256 {sha256}")


if __name__ == "__main__":
    main()
