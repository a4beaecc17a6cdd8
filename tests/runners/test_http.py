"""What a fetch sends and what it leaves behind (docs/reference/http-fetch.md)."""

from __future__ import annotations

import hashlib
import json

import pytest

from engine.clock import SECOND
from engine.plugins.site import HttpSettings
from tests.runners.ops import Context, body_of, data_of, fetch, fetch_failing, fetch_op, get, with_runner
from tests.servers import Call, huge, page, redirect, serve, status


def test_data_holds_the_request_and_the_response() -> None:
    """HTTP-30."""
    with serve({"/list": page("<p>one</p>", X_Result="ok")}) as server:
        given = {
            "page": 2,
            "request": {
                "method": " post ",
                "url": "{{ .input.base }}/list?page={{ .input.page }}",
                "headers": {"x-test-token": "secret"},
                "form": {"town": "{{ .workflow.input.town }}", "page": "{{ .input.page }}"},
            },
            "persistBody": True,
            "artifactName": "list.html",
            "base": server.url,
        }
        result = fetch(given, {"town": "New Milford"})
        (sent,) = server.requests
    assert (sent.method, sent.target, sent.body) == ("POST", "/list?page=2", b"page=2&town=New+Milford")
    assert sent.headers["x-test-token"] == "secret"
    assert sent.headers["content-type"] == "application/x-www-form-urlencoded"
    data = data_of(result)
    assert data["request"] == {
        "method": "POST",
        "url": f"{server.url}/list?page=2",
        "headers": {"X-Test-Token": ["secret"]},
        "bodyText": "page=2&town=New+Milford",
        "contentType": "application/x-www-form-urlencoded",
    }
    assert data["response"] == {
        "statusCode": 200,
        "status": "200 OK",
        "finalURL": f"{server.url}/list?page=2",
        "headers": {
            "Content-Type": ["text/html; charset=utf-8"],
            "X-Result": ["ok"],
            "Content-Length": ["10"],
        },
        "contentType": "text/html; charset=utf-8",
        "contentLength": 10,
        "bodyArtifactID": "fetch-1:response-body",
    }


def test_a_plain_get_says_only_what_there_is() -> None:
    """HTTP-30: absent members are left out."""
    with serve({"/": status(204)}) as server:
        data = data_of(fetch({"request": {"url": f"{server.url}/"}}))
    assert data["request"] == {"method": "GET", "url": f"{server.url}/", "headers": {}}
    assert "contentType" not in data["response"]
    assert "bodyArtifactID" not in data["response"]


def test_the_kept_body_is_an_artifact_with_its_bytes_unchanged() -> None:
    """HTTP-31."""
    body = bytes(range(256))
    with serve({"/": page(body, content_type="Image/PNG; name=x")}) as server:
        result = fetch({**get(f"{server.url}/"), "artifactName": "  logo  "})
    (artifact,) = result.artifacts
    assert artifact.body == body
    assert (artifact.id, artifact.name, artifact.kind) == ("fetch-1:response-body", "logo", "http-response-body")
    assert artifact.content_type == "image/png"
    assert artifact.metadata == {"method": "GET", "url": f"{server.url}/", "status_code": "200"}
    assert (artifact.sha256, artifact.size) == (hashlib.sha256(body).hexdigest(), 256)


def test_without_persist_body_only_the_length_is_known() -> None:
    """HTTP-31."""
    with serve({"/": page("12345")}) as server:
        result = fetch({"request": {"url": f"{server.url}/"}})
    assert result.artifacts == ()
    assert data_of(result)["response"]["contentLength"] == 5


def test_a_body_without_content_type_is_an_octet_stream() -> None:
    """HTTP-31."""
    with serve({"/": status(200, b"?")}) as server:
        (artifact,) = fetch(get(f"{server.url}/")).artifacts
    assert (artifact.name, artifact.content_type) == ("response-body", "application/octet-stream")


@pytest.mark.parametrize(
    ("declared", "body", "charset"),
    [
        ("text/html; charset=ISO-8859-1", "é".encode("latin-1"), "iso-8859-1"),
        ('text/html; charset="Shift_JIS"', "日本".encode("shift_jis"), "shift_jis"),
        ("text/html; charset=utf-8", "é".encode(), None),
        ("text/html; charset=utf-8", b"\xe9", "utf-8"),
        ("text/html; charset=utf-8", b"<meta charset=latin-1>\xc3\xa9", "utf-8"),
        ("text/html", b"\xe9", None),
    ],
)
def test_a_declared_charset_travels_with_the_artifact(declared: str, body: bytes, charset: str | None) -> None:
    """HTTP-32: UTF-8 that is UTF-8 needs no word about it."""
    with serve({"/": page(body, content_type=declared)}) as server:
        (artifact,) = fetch(get(f"{server.url}/")).artifacts
    assert artifact.content_type == "text/html"
    assert artifact.metadata.get("charset") == charset


def test_large_bodies_arrive_whole() -> None:
    with serve({"/": huge(3_000_001)}) as server:
        assert body_of(fetch(get(f"{server.url}/"))) == b"x" * 3_000_001


# ---- requests


def test_user_agent_of_the_runner_the_site_and_the_request() -> None:
    """HTTP-13."""
    with serve({"/": page("")}) as server:
        fetch(get(server.url + "/"))
        fetch(get(server.url + "/"), http=HttpSettings(user_agent="shop/2"))
        fetch(get(server.url + "/", headers={"user-agent": "mine"}), http=HttpSettings(user_agent="shop/2"))
        agents = [request.headers["user-agent"] for request in server.requests]
    assert agents == ["scraper/worker", "shop/2", "mine"]


def test_a_raw_body_is_sent_as_it_is() -> None:
    """HTTP-12."""
    body = '{"q": "Zürich {{ .input.n }}"}'
    with serve({"/": page("")}) as server:
        given = get(server.url + "/", method="PUT", body=body, headers={"Content-Type": "application/json"})
        data = data_of(fetch({**given, "n": 7}))
        (sent,) = server.requests
    assert (sent.method, sent.body) == ("PUT", '{"q": "Zürich 7"}'.encode())
    assert sent.headers["content-type"] == "application/json"
    assert data["request"]["bodyText"] == '{"q": "Zürich 7"}'
    assert data["request"]["contentType"] == "application/json"


def test_a_form_wins_over_a_body_and_is_sorted_by_key() -> None:
    """HTTP-11."""
    form = {"b c": "x y", "a": "1&2", "ä": "ö", "empty": ""}
    with serve({"/": page("")}) as server:
        fetch(get(server.url + "/", method="POST", body="ignored", form=form))
        (sent,) = server.requests
    assert sent.body == b"a=1%262&b+c=x+y&empty=&%C3%A4=%C3%B6"


def test_a_header_may_set_the_content_type_of_a_form() -> None:
    """HTTP-11."""
    declared = "application/x-www-form-urlencoded; charset=utf-8"
    with serve({"/": page("")}) as server:
        data = data_of(fetch(get(server.url + "/", method="POST", form={"a": "1"}, headers={"content-type": declared})))
        (sent,) = server.requests
    assert sent.headers["content-type"] == declared == data["request"]["contentType"]


def test_an_empty_form_and_an_empty_body_send_nothing() -> None:
    """HTTP-11, HTTP-12."""
    with serve({"/": page("")}) as server:
        data = data_of(fetch(get(server.url + "/", form={}, body="")))
        (sent,) = server.requests
    assert sent.body == b""
    assert "content-type" not in sent.headers
    assert "bodyText" not in data["request"]


def test_framing_headers_of_an_op_are_the_connections_business() -> None:
    """HTTP-14."""
    framing = {"Content-Length": "3", "Transfer-Encoding": "chunked", "Connection": "close", "Host": "shop.example"}
    with serve({"/": page("")}) as server:
        fetch(get(server.url + "/", method="POST", body="four", headers=framing))
        (sent,) = server.requests
    assert sent.body == b"four"
    assert sent.headers["content-length"] == "4"
    assert sent.headers["host"] == "shop.example"
    assert "transfer-encoding" not in sent.headers


def test_headers_outside_of_ascii_travel_as_utf_8() -> None:
    """HTTP-14."""
    with serve({"/": page("")}) as server:
        fetch(get(server.url + "/", headers={"X-Town": " Zürich "}))
        (sent,) = server.requests
    assert sent.headers["x-town"].encode("latin-1").decode() == "Zürich"


def test_a_login_in_the_url_is_sent_and_its_password_kept_out_of_messages() -> None:
    """HTTP-14."""
    with serve({"/": status(500)}) as server:
        url = server.url.replace("//", "//ann:s%40fe@")
        error, _ = fetch_failing({"request": {"url": f"{url}/"}})
        (sent,) = server.requests
    assert sent.headers["authorization"] == "Basic YW5uOnNAZmU="
    assert error.message == f"GET {server.url.replace('//', '//ann:***@')}/: 500"


def test_head_has_headers_and_no_body() -> None:
    with serve({"/": page("12345")}) as server:
        data = data_of(fetch(get(server.url + "/", method="head")))
    assert data["response"]["headers"]["Content-Length"] == ["5"]
    assert data["response"]["contentLength"] == 0


# ---- statuses


@pytest.mark.parametrize(
    ("code", "retryable"),
    [(400, False), (404, False), (410, False), (429, True), (500, True), (503, True), (599, True)],
)
def test_statuses_from_400_fail_and_some_are_worth_a_retry(code: int, retryable: bool) -> None:
    """HTTP-41."""
    with serve({"/": status(code, b"why", "Because")}) as server:
        error, evidence = fetch_failing(get(f"{server.url}/"))
    assert (error.code, error.retryable) == (f"http_status_{code}", retryable)
    assert str(code) in error.message
    assert error.details["response"]["statusCode"] == code
    assert error.details["response"]["status"] == f"{code} Because"
    assert json.loads(json.dumps(error.details)) == error.details
    assert body_of(evidence) == b"why"
    assert error.details["response"]["bodyArtifactID"] == "fetch-1:response-body"


@pytest.mark.parametrize("code", [200, 203, 206, 300, 304, 399])
def test_statuses_below_400_succeed(code: int) -> None:
    """HTTP-41."""
    with serve({"/": status(code)}) as server:
        assert data_of(fetch(get(f"{server.url}/")))["response"]["statusCode"] == code


@pytest.mark.parametrize(
    ("value", "date", "pause"),
    [
        ("120", None, 120 * SECOND),
        ("0", None, 0),
        ("Wed, 21 Oct 2026 07:30:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 120 * SECOND),
        ("Wed, 21 Oct 2026 07:30:00 -0000", "Wed, 21 Oct 2026 07:29:00 GMT", 60 * SECOND),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None, 0),
        ("99999999999999999999", None, 24 * 3600 * SECOND),
        ("soon", None, None),
        ("-5", None, None),
        ("\xb2", None, None),
        ("Wed, 99 Foo 2026 99:99:99 GMT", None, None),
        ("", None, None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, date: str | None, pause: int | None) -> None:
    """HTTP-42: a date is compared with the server's own clock."""
    headers = {"Retry-After": value} | ({"Date": date} if date else {})
    with serve(lambda call: call.reply(b"", 503, headers)) as server:
        error, _ = fetch_failing(get(f"{server.url}/"))
    assert error.retry_after == pause


def test_retry_after_says_nothing_where_a_retry_would_not_help() -> None:
    """HTTP-42."""
    with serve({"/": status(404, Retry_After="5")}) as server:
        error, _ = fetch_failing(get(f"{server.url}/"))
    assert error.retry_after is None


# ---- the runner


def test_the_op_begins_once_however_many_requests_it_takes() -> None:
    """HTTP-51."""
    with serve({"/a": redirect("/b"), "/b": page("")}) as server:
        context = Context(fetch_op(get(f"{server.url}/a")))
        with_runner(lambda runner: runner.run(context.run))
    assert context.starts == 1


def test_bad_input_is_found_before_the_op_begins() -> None:
    """HTTP-51: no request goes out, and nothing is waited for."""

    def unexpected(call: Call) -> None:
        raise AssertionError(call)

    with serve(unexpected) as server:
        context = Context(fetch_op(get(f"{server.url}/", headers={"X": 1})))
        with pytest.raises(Exception, match="invalid_input"):
            with_runner(lambda runner: runner.run(context.run))
        assert server.requests == []


def test_fetches_leave_nothing_to_resolve() -> None:
    context = Context(fetch_op(get("http://127.0.0.1/")))
    assert with_runner(lambda runner: runner.resolve(context.run)) is None
