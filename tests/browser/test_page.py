"""The live page in a real browser, while requests are served."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.conftest import CHROMIUM, DEADLINE_S, OpenPage, Traffic, take_picture
from tests.end_to_end.conftest import Mesh

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: install it"),
]

VIEWS = ("mesh", "promises", "request", "placement", "what-if", "chat")
TOO_WIDE = """
[...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > 391 && !one.closest(".scroll"))
  .map((one) => one.outerHTML.slice(0, 80))
"""
LONG = 2000  # tokens: half a minute of a simulated engine


def violations(page: Any, *rules: str) -> list[str]:
    """Of all rules if none is named."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": list(rules)} if rules else {}).response["violations"]
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found]


def wait_until_ended(traffic: Traffic, count: int = 3) -> None:
    """Until so many of its requests have ended."""
    ends_at = time.monotonic() + DEADLINE_S
    while traffic.num_ended < count:
        assert time.monotonic() < ends_at, "no request has ended"
        time.sleep(0.05)


def test_what_the_feed_says_before_the_page_listens_is_shown(open_page: OpenPage):
    """A view listens after its first frame is drawn: here long after the feed was opened, and nothing comes later."""
    late = "const soon = setTimeout; window.setTimeout = (call, ms, ...given) => soon(call, ms || 1000, ...given)"
    page = open_page("mesh", script=late)
    page.get_by_role("article", name="Engine prefill").wait_for()


def test_the_mesh_is_shown_as_it_is(open_page: OpenPage, traffic: Traffic):
    page = open_page("mesh", reduced_motion="no-preference")
    for engine in ("prefill", "decode-0", "decode-1"):
        card = page.get_by_role("article", name=f"Engine {engine}")
        card.wait_for()
        assert "ready" in card.inner_text()
    page.get_by_role("cell", name="sent to").first.wait_for()
    page.get_by_role("cell", name="handed over to").first.wait_for()
    take_picture(page, "mesh")


def test_a_migration_becomes_visible(open_page: OpenPage, mesh: Mesh):
    page = open_page("mesh")
    name = "order-of-the-migration"
    with httpx.Client(base_url=mesh.url, timeout=DEADLINE_S, headers={"x-request-id": name}) as client:
        body = {"model": "chat", "prompt": "Hello", "max_tokens": LONG, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=body):
            page.get_by_role("link", name="order-of").first.wait_for()
            handed = page.get_by_role("row", name="order-of").filter(has_text="handed over to").first
            there = "decode-1" if "decode-0" in handed.inner_text() else "decode-0"
            moved = mesh.run("migrate", str(mesh.topology), name, there)
            assert moved.returncode == 0, moved.stderr
            row = page.get_by_role("row", name="order-of").filter(has_text="migrated to").first
            assert there in row.inner_text().split("\t")


def test_promises_are_counted(open_page: OpenPage, traffic: Traffic):
    page = open_page("promises")
    kept = page.locator(".tile", has_text="both promises kept")
    page.wait_for_function("() => /%/.test(document.querySelector('.tile b')?.textContent ?? '')")
    assert kept.locator("b").inner_text().endswith("%")
    assert page.locator("canvas").count() == 5
    page.get_by_role("cell", name="127.0.0.1").first.wait_for()
    page.get_by_text("Latest: P50").first.wait_for()
    take_picture(page, "promises")


def test_what_if_simulates_the_last_hour(open_page: OpenPage, traffic: Traffic):
    wait_until_ended(traffic)
    page = open_page("what-if")
    page.get_by_label("that this gateway remembers of the last hour").check()
    page.locator("input[name=policy][value=colocated]").check()
    page.get_by_label("decode (now 2)").fill("4")
    page.get_by_role("button", name="Try these, too").click()
    page.locator("#what-if-run").click()
    page.locator("#what-if-progress").wait_for()
    verdict = page.locator("#what-if-verdict")
    verdict.wait_for()
    assert "keeps both promises for" in verdict.inner_text()
    assert page.locator("section[aria-label=Result] canvas").count() == 3
    rows = page.get_by_role("table", name="What each alternative came to").locator("tbody tr")
    alternatives = [row.split("\t")[0].removesuffix(" ★") for row in rows.all_inner_texts()]
    assert "as recorded" in alternatives
    for policy in ("tropical", "colocated"):
        assert len([name for name in alternatives if name.startswith(policy)]) == 2, alternatives
    assert violations(page) == []
    take_picture(page, "what-if", whole=True)


def test_what_if_plays_a_recording_until_it_is_stopped(open_page: OpenPage, tmp_path: Path):
    page = open_page("what-if")
    rows = (f"{at / 4:.2f},200,400" for at in range(40_000))  # minutes of simulation
    recording = tmp_path / "recording.csv"
    recording.write_text("\n".join(["arrived_s,input_tokens,output_tokens", *rows]))
    page.locator("#what-if-run").wait_for()
    page.locator("#what-if-file").set_input_files(recording)
    page.locator("#what-if-run").click()
    page.wait_for_function("() => document.querySelector('#what-if-progress')?.value > 0")
    assert page.locator("#what-if-run").is_disabled()
    page.locator("#what-if-stop").click()
    page.get_by_role("alert").filter(has_text="Stopped.").wait_for()
    short = tmp_path / "short.csv"
    short.write_text("arrived_s,input_tokens,output_tokens\n0,20,4\n1,20,4\n")
    page.locator("#what-if-file").set_input_files(short)
    page.locator("#what-if-run").click()  # the one before has gone
    page.locator("#what-if-verdict").wait_for()


def test_chat_answers_and_tells_what_happened(open_page: OpenPage):
    page = open_page("chat")
    page.get_by_label("Most tokens").fill("12")
    page.locator("#chat-message").fill("Hello")
    page.keyboard.press("Enter")
    link = page.get_by_role("link", name="what happened to it")
    link.wait_for()
    assert "of 1000 ms promised" in page.get_by_role("article", name="Answer").inner_text()
    take_picture(page, "chat")
    link.click()
    page.get_by_role("heading", name="Request", level=2).wait_for()
    page.get_by_text("finished").first.wait_for()


def test_the_keyboard_reaches_everything(open_page: OpenPage):
    page = open_page("mesh")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Shift+Tab")
    while page.evaluate("document.activeElement.textContent") != "Promises":
        assert page.evaluate("document.activeElement !== document.body")
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Promises", level=2).wait_for()
    page.get_by_label("Of the last").focus()
    page.keyboard.press("ArrowUp")
    assert page.get_by_label("Of the last").input_value() == "60"


@pytest.mark.parametrize("view", VIEWS)
def test_everybody_can_use_it_and_nothing_is_wider_than_a_phone(open_page: OpenPage, view: str, traffic: Traffic):
    page = open_page(view, width=390, height=844, color_scheme="light")
    page.get_by_role("heading", level=2).wait_for()
    page.wait_for_timeout(500)
    assert page.evaluate(TOO_WIDE) == []
    page.set_viewport_size({"width": 1280, "height": 800})
    assert violations(page) == []
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert violations(page, "color-contrast") == []


def test_an_address_that_cannot_be_decoded_leads_somewhere(open_page: OpenPage):
    page = open_page("request/100%", may_log="404")
    page.get_by_role("heading", level=2).wait_for()


def test_a_gateway_that_refuses_is_told_and_asked_again(open_page: OpenPage):
    page = open_page("mesh", may_log="503")
    refusal = json.dumps({"error": {"message": "64 others read this gateway's feed", "code": "feed_full"}})
    page.route("**/mesh/feed", lambda route: route.fulfill(status=503, body=refusal))
    page.reload()
    page.get_by_role("alert").filter(has_text="64 others read").wait_for()
    page.unroute("**/mesh/feed")
    page.get_by_text("● live").wait_for()
    assert page.get_by_role("alert").count() == 0
