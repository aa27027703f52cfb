from pathlib import Path

import pytest

from engines.models.errors import ModelError
from engines.models.text.chat_template import Chat, ChatError, ChatTemplate
from tests.engines.models.tiny import TEMPLATE

HELLO = [{"role": "user", "content": "hello"}]


def template(**sources: str) -> ChatTemplate:
    return ChatTemplate(sources, {"bos_token": "<s>"}, Path("model"))


def test_special_tokens_tools_and_parameters_are_variables():
    source = "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{{ mood }}{{ add_generation_prompt }}"
    tools = [{"type": "function", "function": {"name": "<f>"}}]
    rendered = template(default=source).render(
        Chat(HELLO, tools, add_generation_prompt=False, parameters={"mood": "calm"})
    )
    assert rendered == '<s>[{"type": "function", "function": {"name": "<f>"}}]calmFalse'


def test_what_templates_may_call_is_a_plain_dictionary_as_it_is_copied_for_each_text():
    template = ChatTemplate({"default": "{{ namespace(a=1).a }}"}, {}, Path("m"))
    assert template.render(Chat([])) == "1"
    assert {type(one.globals) for one in template._templates.values()} == {dict}


def test_white_space_and_loop_controls_are_those_of_hugging_face():
    source = (
        "{% for m in messages %}\n    {% if loop.first %}\n{% continue %}\n{% endif %}\n{{ m.content }}\n{% endfor %}"
    )
    assert template(default=source).render(Chat(HELLO * 2)) == "hello\n"


def test_generation_blocks_show_what_they_hold():
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert template(default=source).render(Chat(HELLO)) == "hello"


def test_chats_with_tools_have_their_own_template_where_there_is_one():
    templates = template(default="chat", tool_use="tools")
    assert templates.render(Chat(HELLO)) == "chat"
    assert templates.render(Chat(HELLO, [{"type": "function"}])) == "tools"


def test_content_in_parts_is_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "user\na\nb<|im_end|>" in template(default=TEMPLATE).render(Chat([{"role": "user", "content": parts}]))


@pytest.mark.parametrize(
    ("source", "messages", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", HELLO, "does not take these messages: roles must alternate$"),
        (TEMPLATE, [{"role": "user", "content": None}], "does not take these messages: can only concatenate str"),
        (TEMPLATE, [{"role": "user"}], "does not take these messages: "),
        ("{{ messages.__class__.__mro__ }}", HELLO, "does not take these messages: .*unsafe"),
        (
            TEMPLATE,
            [{"role": "user", "content": [{"type": "image_url"}]}],
            "content of type 'image_url' is not supported",
        ),
    ],
)
def test_messages_that_cannot_be_rendered_say_why(source: str, messages: list[dict[str, object]], message: str):
    with pytest.raises(ChatError, match=message):
        template(default=source).render(Chat(messages))


def test_a_model_without_a_template_points_to_completions():
    with pytest.raises(ChatError, match="no chat template; use /v1/completions"):
        template().render(Chat(HELLO))


def test_a_malformed_template_is_a_fault_of_the_model():
    with pytest.raises(ModelError, match="model: the chat template is malformed"):
        template(default="{% for %}")


CALL = {"function": {"name": "f", "arguments": '{"a":1}'}}
CALLING = [{"role": "assistant", "content": None, "tool_calls": [CALL]}]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("call.function.arguments.a", "1"),
        ("call.function.arguments | tojson", '{"a": 1}'),
        ("'arguments: ' + call.function.arguments", 'arguments: {"a":1}'),
    ],
)
def test_arguments_are_objects_unless_a_template_wants_text(shown: str, text: str):
    source = "{% for m in messages %}{% for call in m.tool_calls %}{{ " + shown + " }}{% endfor %}{% endfor %}"
    assert template(default=source).render(Chat(CALLING)) == text


def test_the_first_failure_is_told_where_objects_and_text_fail():
    source = "{{ raise_exception('text' if messages[0].tool_calls[0].function.arguments is string else 'object') }}"
    with pytest.raises(ChatError, match=r"does not take these messages: object$"):
        template(default=source).render(Chat(CALLING))


def test_a_last_message_that_is_not_shown_whole_is_not_continued():
    source = "{{ messages[-1].content.split('|')[-1] }}"
    with pytest.raises(ChatError, match="does not show the last message as it is"):
        template(default=source).render(Chat([{"role": "assistant", "content": "a|b"}], continues=True))


@pytest.mark.parametrize("content", ["m.content", "m['content']", "m.get('content')", "m.content | list"])
def test_a_template_that_goes_through_parts_gets_them(content: str):
    source = "{% for m in messages %}{% for part in " + content + " %}[{{ part.text }}]{% endfor %}{% endfor %}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template(default=source).render(Chat([{"role": "user", "content": parts}])) == "[a][b]"
