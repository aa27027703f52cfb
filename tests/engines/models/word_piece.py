"""A tokenizer like BERT's, small enough to be made for a test."""

from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORDS = ("the", "quick", "brown", "fox", "jump", "##s", "over", "lazy", "dog", "cats", "eat", "fish", "rockets", "fly")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_word_piece(folder: Path) -> "PreTrainedTokenizerFast":
    """Write ``tokenizer.json``, which pads and truncates as many of such files do. Returns transformers' own."""
    import transformers

    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.enable_truncation(6)
    tokenizer.enable_padding(length=6)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
