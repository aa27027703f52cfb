"""Batches with OpenAI's client: each line is answered once, whatever happens to its gateway."""

import asyncio
import json
import time

import openai
import pytest

from mesh.wire.requests import PRIORITY_BATCH
from router.generation import Fault, Overloaded, RequestFailed
from tests.router.api.batches.conftest import gateway_with, lines
from tests.router.api.conftest import one_by_one


async def test_a_batch_from_its_file_to_its_answers(batches):
    client = batches.client()
    file = await client.files.create(file=("lines.jsonl", lines(5)), purpose="batch")
    assert (file.filename, file.bytes, file.purpose, file.status) == (
        "lines.jsonl",
        len(lines(5)),
        "batch",
        "processed",
    )
    begun = await client.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h", metadata={"who": "me"}
    )
    assert (begun.status, begun.expires_at - begun.created_at) == ("validating", 86400)
    batch = await batches.until_over(begun.id)
    counts = batch.request_counts
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", 5, 5, 0)
    assert (batch.metadata, batch.error_file_id, batch.errors) == ({"who": "me"}, None, None)
    answers = await batches.lines_of(batch.output_file_id)
    assert [one["custom_id"] for one in answers] == [f"line-{number}" for number in range(5)]
    assert {one["response"]["status_code"] for one in answers} == {200}
    assert answers[0]["response"]["body"]["object"] == "text_completion"
    assert [one.id async for one in client.batches.list()] == [batch.id]
    assert [one.purpose async for one in client.files.list()] == ["batch_output", "batch"]


async def test_lines_are_promised_their_window_and_nothing_else(batches):
    await batches.until_over((await batches.create(lines(1), completion_window="2h")).id)
    [spec] = batches.router.specs
    assert spec.is_filler
    assert spec.priority == PRIORITY_BATCH
    assert 7100 < spec.slo_ttft_s <= 7200
    assert batches.router.metrics.slo_requests.labels("tiny").value == 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_lines_are_answered_by_the_path_that_they_name(batches, path):
    text = lines(2, path, messages=[{"role": "user", "content": "Hi"}])
    batch = await batches.until_over((await batches.create(text, endpoint=path)).id)
    kinds = {one["response"]["body"]["object"] for one in await batches.lines_of(batch.output_file_id)}
    assert kinds == {"chat.completion" if "chat" in path else "text_completion"}


async def test_what_is_wrong_with_a_request_is_in_the_error_file(batches):
    rows = [json.loads(row) for row in lines(3).splitlines()]
    rows[1]["body"]["temperature"] = 9
    text = b"\n".join(json.dumps(row).encode() for row in rows)
    batch = await batches.until_over((await batches.create(text)).id)
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 2, 1)
    [error] = await batches.lines_of(batch.error_file_id)
    assert error["custom_id"] == "line-1"
    assert error["response"]["status_code"] == 400
    assert error["response"]["body"]["error"]["param"] == "temperature"


async def test_what_is_for_later_is_asked_again(batches):
    refusals = iter([Overloaded("full", 1.0), Overloaded("full", 1.0), RequestFailed("died", Fault.SERVER)])
    batches.router.script = lambda spec: [next(refusals, None) or one_by_one([10])[0]]
    batch = await batches.until_over((await batches.create(lines(1))).id)
    assert (batch.request_counts.completed, len(batches.router.specs)) == (1, 4)


async def test_a_file_that_is_no_batch_fails_with_its_faults(batches):
    good = lines(2).splitlines()
    text = b"\n".join(
        [good[0], b"{", good[0], b'{"custom_id": "x", "method": "GET"}', good[1].replace(b"/v1/comp", b"/v2/comp")]
    )
    batch = await batches.until_over((await batches.create(text)).id)
    assert batch.status == "failed"
    assert [(one.line, one.code) for one in batch.errors.data] == [
        (2, "invalid_json_line"), (3, "duplicate_custom_id"), (4, "invalid_json_line"), (5, "mismatched_url"),
    ]  # fmt: skip
    assert not batches.router.specs


async def test_a_cancelled_batch_keeps_what_was_answered(batches):
    gate = asyncio.Event()
    answered = iter(range(3))
    batches.router.script = lambda spec: one_by_one([10]) if next(answered, None) is not None else [gate]
    begun = await batches.create(lines(20))
    await batches.until_answered(begun.id, 3)
    assert (await batches.client().batches.cancel(begun.id)).status == "cancelling"
    batch = await batches.until_over(begun.id)
    assert (batch.status, batch.request_counts.completed) == ("cancelled", 3)
    assert len(await batches.lines_of(batch.output_file_id)) == 3
    assert all(one.cancelled.is_set() for one in batches.router.generations[3:])
    with pytest.raises(openai.ConflictError):
        await batches.client().batches.cancel(begun.id)


async def test_after_a_restart_only_unanswered_lines_run(model, tmp_path):
    answered = iter(range(4))
    async with gateway_with(
        model, tmp_path, lambda spec: one_by_one([10]) if next(answered, None) is not None else [asyncio.Event()]
    ) as first:
        begun = await first.create(lines(9))
        await first.until_answered(begun.id, 4)
    async with gateway_with(model, tmp_path) as second:
        batch = await second.until_over(begun.id)
        assert (batch.status, batch.request_counts.completed, len(second.router.specs)) == ("completed", 9, 5)
        names = [one["custom_id"] for one in await second.lines_of(batch.output_file_id)]
        assert names == [f"line-{number}" for number in range(9)]


async def test_a_batch_ends_with_its_window(model, tmp_path):
    now = [time.time()]
    answered = iter(range(2))
    script = lambda spec: one_by_one([10]) if next(answered, None) is not None else [asyncio.Event()]  # noqa: E731
    async with gateway_with(model, tmp_path, script, wall_clock=lambda: now[0]) as made:
        begun = await made.create(lines(5), completion_window="1h")
        await made.until_answered(begun.id, 2)
        now[0] += 3601
        batch = await made.until_over(begun.id)
        assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("expired", 2, 3)
        errors = await made.lines_of(batch.error_file_id)
        assert [one["error"]["code"] for one in errors] == ["batch_expired"] * 3


async def test_two_gateways_share_the_work_and_no_line(model, tmp_path):
    async with gateway_with(model, tmp_path) as first, gateway_with(model, tmp_path) as second:
        begun = [await made.create(lines(6)) for made in (first, second, first, second)]
        for one in begun:
            assert (await second.until_over(one.id)).request_counts.completed == 6
        assert len(first.router.specs) + len(second.router.specs) == 24


async def test_nobody_sees_files_and_batches_of_others(batches):
    mine, theirs = batches.client("me"), batches.client("them")
    begun = await batches.create(lines(1), mine)
    batch = await batches.until_over(begun.id, mine)
    assert [one async for one in theirs.files.list()] == []
    assert [one async for one in theirs.batches.list()] == []
    for ask in (
        lambda: theirs.batches.retrieve(batch.id), lambda: theirs.batches.cancel(batch.id),
        lambda: theirs.files.content(batch.output_file_id), lambda: theirs.files.delete(batch.output_file_id),
        lambda: theirs.batches.create(
            input_file_id=batch.input_file_id, endpoint="/v1/completions", completion_window="24h"),
    ):  # fmt: skip
        with pytest.raises(openai.NotFoundError):
            await ask()


@pytest.mark.parametrize(("field", "value"), [
    ("endpoint", "/v1/nothing"), ("endpoint", "/tokenize"), ("completion_window", "soon"),
    ("completion_window", "9999d"), ("metadata", {"a": "b" * 513}), ("metadata", {str(n): "" for n in range(17)}),
])  # fmt: skip
async def test_bad_fields_are_named(batches, field, value):
    with pytest.raises(openai.BadRequestError) as bad:
        await batches.create(lines(1), **{field: value})
    assert field in bad.value.message


async def test_pages_of_batches(batches):
    ids = [(await batches.create(lines(1))).id for _ in range(5)]
    page = await batches.client().batches.list(limit=2)
    assert [one.id for one in page.data] == ids[:-3:-1]
    assert [one.id async for one in batches.client().batches.list(limit=2)] == ids[::-1]


async def test_a_full_store_is_told(model, tmp_path):
    async with gateway_with(model, tmp_path, max_bytes=1200) as made:
        batch = await made.until_over((await made.create(lines(6))).id)
        assert (batch.status, batch.errors.data[0].code) == ("failed", "store_full")
        with pytest.raises(openai.APIStatusError) as full:
            await made.client().files.create(file=("x", lines(6)), purpose="batch")
        assert full.value.status_code == 413
