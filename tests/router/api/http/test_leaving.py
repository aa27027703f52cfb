from router.api.http.leaving import Leaving


async def answer(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": b"x"})


async def sent(app, kind="http"):
    messages = []

    async def send(message):
        messages.append(message)

    await app({"type": kind}, None, send)
    return messages


async def test_answers_are_as_they_are_until_a_successor_serves():
    assert (await sent(Leaving(answer)))[0]["headers"] == [(b"a", b"b")]


async def test_then_each_is_the_last_one_of_its_connection():
    leaving = Leaving(answer)
    leaving.set()
    start, body = await sent(leaving)
    assert start["headers"] == [(b"a", b"b"), (b"connection", b"close")]
    assert body == {"type": "http.response.body", "body": b"x"}
