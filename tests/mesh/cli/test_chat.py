"""`mesh chat` against a small server with the OpenAI API's shape."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mesh.cli import main

ASKED = []


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(200, "application/json", json.dumps({"data": [{"id": "tiny"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ASKED.append(body)
        if body["model"] != "tiny":
            error = {"error": {"message": f"no model {body['model']}; there is tiny"}}
            self.reply(404, "application/json", json.dumps(error))
            return
        events = [{"choices": [{"delta": {"content": word}}]} for word in ("Hello", ", ", "you")]
        if "fail" in body["messages"][-1]["content"]:
            events.append({"error": {"message": "the engine died"}})
        self.reply(200, "text/event-stream", "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n")

    def reply(self, status, kind, text):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    ASKED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_one_question(url, capsys):
    assert main(["chat", "hello?", "--url", url, "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out == "Hello, you\n"
    assert ASKED == [
        {"model": "tiny", "messages": [{"role": "user", "content": "hello?"}], "max_tokens": 5, "stream": True}
    ]


def test_a_refusal_in_the_servers_words(url, capsys):
    assert main(["chat", "hello?", "--url", url, "--model", "huge"]) == 2
    assert capsys.readouterr().err == f"{url}/v1/chat/completions: 404: no model huge; there is tiny\n"


def test_a_failure_in_the_middle(url, capsys):
    assert main(["chat", "please fail", "--url", url]) == 2
    assert capsys.readouterr().err == "the engine died\n"


def test_a_conversation_remembers_what_was_said(url, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\nplease fail\ntwo\n"))
    assert main(["chat", "--url", url]) == 0
    assert "the engine died" in capsys.readouterr().out
    assert [message["content"] for message in ASKED[-1]["messages"]] == ["one", "Hello, you", "two"]
