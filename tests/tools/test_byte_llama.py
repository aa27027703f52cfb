"""How the byte-level model is made: its text, its optimiser, its folder."""

from pathlib import Path

import pytest
import torch

from tests.tools.byte_llama import text
from tests.tools.byte_llama.network import END, ByteLlama, Shape
from tests.tools.byte_llama.training import Muon, Stream, as_stored, held_out_bits, orthogonal, train, write_model

SMALL = Shape(num_layers=2, hidden_size=32, intermediate_size=48, num_heads=4, num_kv_heads=2, head_dim=8, context=256)
BITS_OF_LETTERS = 3.7  # of a byte of the words below, by the frequencies of letters alone
WORDS = [b"one apple falls", b"two pears are red", b"three plums float"]


def _file(root: Path, name: str, source: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(source)


def _held_out(of: int) -> list[str]:
    """Names of files that are held out."""
    names = (f"m{number}.py" for number in range(10_000))
    return [name for name in names if text.is_held_out(Path(name))][:of]


def test_documents_are_docstrings_comments_topics_and_the_licence(tmp_path):
    _file(tmp_path, "LICENSE.txt", "A licence of more than forty bytes, all in all.")
    _file(
        tmp_path,
        "package/module.py",
        '"""A module with a docstring that is long enough."""\n'
        "# A comment of two lines that go together,\n#   the second one.\n"
        'def f():\n    """Too short."""\nclass C:\n    """A class with\n    a docstring that is long enough."""\n',
    )
    _file(tmp_path, "test/module.py", '"""A test with a docstring that is long enough."""\n')
    _file(tmp_path, "bad.py", "(\n# A comment of a file that is no Python, however long.\n")
    corpus = text.library(tmp_path)
    assert corpus.training[:3] == [
        b"A module with a docstring that is long enough.",
        b"A class with\na docstring that is long enough.",
        b"A comment of two lines that go together,\n  the second one.",
    ]
    assert corpus.training[-1].startswith(b"A licence")
    assert len(corpus.training) > 50, "the topics of help()"
    assert not any(b"A test" in one or b"no Python" in one for one in corpus.training)
    assert corpus.held_out == []


def test_nothing_that_is_held_out_was_trained_on(tmp_path):
    first, second = _held_out(2)
    shared = "This sentence stands in two files and is longer than sixty-four bytes, so it would be known."
    _file(tmp_path, "LICENSE.txt", "A licence of more than forty bytes, all in all.")
    _file(tmp_path, "package/known.py", f'"""Known.\n\n{shared}"""\n')
    _file(tmp_path, first, f'"""Unknown, but for this:\n\n{shared}"""\n')
    _file(tmp_path, second, '"""Unknown altogether: quickly jumping zebras vex."""\n')
    corpus = text.library(tmp_path)
    assert corpus.held_out == [b"Unknown altogether: quickly jumping zebras vex."]
    assert not set(corpus.held_out) & set(corpus.training)


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 6, 20), (3, 20, 6)])
def test_orthogonal_matrices_have_singular_values_near_one(shape):
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_muon_steps_by_the_rate():
    matrices = [torch.nn.Parameter(torch.zeros(8, 24)), torch.nn.Parameter(torch.zeros(24, 8))]
    for matrix in matrices:
        matrix.grad = torch.randn(matrix.shape, generator=torch.Generator().manual_seed(1))
    gradients = [matrix.grad.clone() for matrix in matrices]
    Muon(matrices).step(0.01)
    for matrix, gradient in zip(matrices, gradients, strict=True):
        assert matrix.square().mean().sqrt().item() == pytest.approx(0.01, rel=0.2)
        assert (matrix * gradient).sum() < 0, "it goes down"
        assert matrix.grad is None


def _trained(seed: int, num_steps: int, shape: Shape = SMALL) -> ByteLlama:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    network = ByteLlama(shape)
    train(network, shape, Stream.of(WORDS * 60, generator), num_steps, generator)
    return network


def test_training_learns():
    assert held_out_bits(ByteLlama(SMALL), WORDS, SMALL.context) > 6.0
    assert held_out_bits(_trained(0, 25), WORDS, SMALL.context) < 0.8 * BITS_OF_LETTERS


def test_a_seed_gives_one_network():
    weights, again, others = (_trained(seed, 3).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert not torch.equal(weights["lm_head.weight"], others["lm_head.weight"])


def test_long_documents_are_scored_in_parts():
    network = _trained(0, 3)
    whole = held_out_bits(network, [b"one apple" * 3, b"two pears"], 1 + 9)
    assert whole == pytest.approx(held_out_bits(network, [b"one apple"] * 3 + [b"two pears"], 256), rel=1e-5)


def test_the_folder_is_the_network(tmp_path):
    import transformers

    network = _trained(0, 2, Shape())
    write_model(tmp_path, network)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = torch.tensor([[256, *b"one apple falls", END]])
    with torch.no_grad():
        expected = as_stored(network)(tokens)
        torch.testing.assert_close(theirs(tokens).logits, expected, atol=1e-5, rtol=1e-5)
