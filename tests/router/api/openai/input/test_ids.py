import pytest

from router.api.openai.input.ids import CallId, is_meant

CALL = CallId("order-17", "00ff00ff00ff00ff")


@pytest.mark.parametrize(
    "asked",
    [
        "order-17",
        "chatcmpl-00ff00ff00ff00ff",
        "cmpl-00ff00ff00ff00ff",
        "00ff00ff00ff00ff",
        "order-17-00ff00ff00ff00ff",
        "order-17-00ff00ff00ff00ff-1",
        "chatcmpl-00ff00ff00ff00ff-1",
    ],
)
def test_whatever_a_client_saw_means_the_choice(asked):
    assert is_meant(CALL.choice(1), asked)


@pytest.mark.parametrize("asked", ["", "order", "17", "1", "chatcmpl-", "00ff00ff00ff00ff-0", "order-17-1", "cmpl-1"])
def test_what_is_less_than_a_name_means_nothing(asked):
    assert not is_meant(CALL.choice(1), asked)


def test_the_id_of_an_answer_is_new_each_time():
    assert CallId.draw("r").answer("cmpl-") != CallId.draw("r").answer("cmpl-")


def test_ids_of_other_shapes_are_themselves():
    assert is_meant("7", "7")
    assert not is_meant("7", "")
