"""The chat templates of real models that lie in ``templates``, and what is to be found in each."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engines.models.text.chat_template import ChatTemplate
from router.chat.style import ChatStyle, style_of

FOLDER = Path(__file__).parent / "templates"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
NAMES = sorted(path.stem for path in FOLDER.glob("*.jinja"))


@dataclass(frozen=True)
class RealTemplate:
    source: str
    template: ChatTemplate
    style: ChatStyle


@cache
def real_template(name: str) -> RealTemplate:
    path = FOLDER / f"{name}.jinja"
    source = path.read_text(encoding="utf-8")
    template = ChatTemplate({"default": source}, SPECIAL_TOKENS, path)
    return RealTemplate(source, template, style_of(template, lambda _: None, frozenset()))
