"""Files: what is uploaded is what is read, and hostile uploads leave nothing."""

import openai
import pytest

from router.api.batches.upload import MAX_FIELD_BYTES, MAX_FIELDS
from tests.router.api.batches.conftest import gateway_with, lines

EDGE = "x" * 20
JSON = b'{"a": 1}\n'


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--{EDGE}\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{EDGE}--\r\n".encode()


FILE = part("file", JSON, '; filename="a.jsonl"')
PURPOSE = part("purpose", b"batch")


async def send(batches, body: bytes, kind: str = f"multipart/form-data; boundary={EDGE}"):
    return await batches.http.post("/v1/files", content=body, headers={"content-type": kind})


def on_disk(batches) -> list[str]:
    folder = batches.parts.stored.folder / "files"
    return [path.name for path in folder.iterdir()] if folder.exists() else []


@pytest.mark.parametrize("size", [0, 1, 5_000, 700_000])
async def test_what_is_uploaded_is_what_is_read(batches, size):
    client, text = batches.client(), bytes(range(256)) * (size // 256) + b"\r\n--x" * (size % 7)
    file = await client.files.create(file=("a.jsonl", text), purpose="batch")
    assert (await client.files.content(file.id)).content == text
    assert (await client.files.retrieve(file.id)).bytes == len(text)
    assert (await client.files.delete(file.id)).deleted
    assert on_disk(batches) == []
    with pytest.raises(openai.NotFoundError):
        await client.files.content(file.id)


@pytest.mark.parametrize(("body", "status"), [
    (b"", 400), (b"--", 400), (JSON, 400), (FILE, 400), (form(FILE), 400), (form(PURPOSE), 400),
    (form(FILE, part("purpose", b"fine-tune")), 400), (form(FILE, FILE, PURPOSE), 400),
    (form(FILE, part("purpose", b"b" * (MAX_FIELD_BYTES + 1))), 400),
    (form(*[part(f"f{number}", b"") for number in range(MAX_FIELDS + 1)]), 400),
    (form(part("a", b"", "; b=" + "c" * 3000)), 400),
    (form(FILE, PURPOSE, part("expires_after[seconds]", b"1")), 400),
    (form(FILE, PURPOSE, part("expires_after[seconds]", "٣٣٣٣٣".encode())), 400),
    (form(part("file", b"x" * (1 << 20) + b"y", "; filename=b"), PURPOSE), 413),
    (form(part("x" * 100_000, b"")), 400),
], ids=range(15))  # fmt: skip
async def test_hostile_uploads_are_refused_and_leave_nothing(batches, body, status):
    assert (await send(batches, body)).status_code == status
    assert on_disk(batches) == []


@pytest.mark.parametrize("kind", [
    "application/json", "multipart/form-data", "multipart/form-data; boundary=", "text/plain; boundary=x",
    f"multipart/form-data; boundary={'x' * 71}",
])  # fmt: skip
async def test_what_is_no_form_is_refused(batches, kind):
    assert (await send(batches, form(FILE, PURPOSE), kind)).status_code == 415


async def test_names_of_files_are_no_paths(batches):
    body = form(part("file", JSON, '; filename="../../etc/pass\x07wd"'), PURPOSE)
    assert (await send(batches, body)).json()["filename"] == "passwd"
    for name in ("..", "file-..%2f..%2fx", "file-" + "a" * 200, "batch_x", "%00"):
        for path in (f"/v1/files/{name}", f"/v1/files/{name}/content", f"/v1/batches/{name}"):
            assert (await batches.http.get(path)).status_code in (404, 405)


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=1000000", "after=%27", "limit=٣"])
async def test_odd_pages_are_refused(batches, query):
    assert (await batches.http.get(f"/v1/files?{query}")).status_code == 400
    assert (await batches.http.get(f"/v1/batches?{query}")).status_code == 400


async def test_a_file_of_a_batch_that_runs_stays(model, tmp_path):
    async with gateway_with(model, tmp_path, runs=False) as made:
        begun = await made.create(lines(2))
        with pytest.raises(openai.ConflictError):
            await made.client().files.delete(begun.input_file_id)


async def test_a_page_of_another_site_cannot_upload(batches):
    headers = {"content-type": f"multipart/form-data; boundary={EDGE}", "origin": "https://evil.example"}
    asked = await batches.http.post("/v1/files", content=form(FILE, PURPOSE), headers=headers)
    assert asked.status_code == 415
    asked = await batches.http.post("/v1/batches", content=form(FILE, PURPOSE), headers=headers)
    assert (asked.status_code, on_disk(batches)) == (415, [])
