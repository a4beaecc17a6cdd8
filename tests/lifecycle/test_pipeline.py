"""A cycle from its request to its end: the order of its stages, and what each hook's end means for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.lifecycle.scripts import PIPELINE_HOOKS
from engine.projection.postgresql import PostgresqlDatabase
from tests.lifecycle.bench import PAGE, Bench

HOOK = {"url": "http://sink/x"}
#: Every hook says its name and goes on.
ALL_HOOKS = "\n".join(
    f"function {name}(value, ctx) {{ log('{name}'); return value }}"
    for name in PIPELINE_HOOKS
    if name not in ("override_fetch", "override_extract")
)
ALL_DEFER = "\n".join(
    f"function {name}() {{ log('{name}') }}" for name in ("on_success", "on_error", "on_finally", "on_finished")
)
COUNT = "async function on_finally(ctx) { await store_incr('cycles') }"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def called(bench: Bench) -> list[str]:
    names = {*PIPELINE_HOOKS, "on_success", "on_error", "on_finally", "on_finished"}
    return [line for line in bench.logs if line in names]


def test_hooks_are_called_in_the_one_order_of_the_pipeline(bench: Bench) -> None:
    """JOB-201, JOB-204, JOB-207"""
    bench.job(ALL_HOOKS, ALL_DEFER, webhook=HOOK)
    bench.iterate()
    assert called(bench) == [
        *("before_fetch", "after_fetch", "after_extract", "filter_item", "filter_item", "before_store"),
        *("before_notify", "before_webhook", "on_success", "on_finally", "on_finished"),
    ]
    order = bench.rows("SELECT stage FROM hook_journal") or []
    assert order == []  # what the hooks of a cycle shared is gone with it
    assert all(stage["status"] == "success" for name, stage in bench.stages().items() if not name.startswith("over"))


def test_overrides_take_the_place_of_the_engines_stages_and_the_next_hooks_still_run(bench: Bench) -> None:
    """JOB-203, JOB-1110"""
    bench.job(
        ALL_HOOKS
        + """
        function override_fetch(r) { return {status: 200, body: '<p>from the hook', url: r.url} }
        function override_extract(res, ctx) { return [{fields: {name: res.body.slice(3)}}] }""",
        "",
    )
    bench.iterate()
    assert bench.requests == []
    assert bench.names() == ["from the hook"]
    assert called(bench)[:3] == ["before_fetch", "after_fetch", "after_extract"]
    stages = bench.stages()
    assert (stages["override_fetch"]["status"], stages["fetch"]["status"]) == ("success", "success")
    assert (stages["override_extract"]["status"], stages["extract"]["status"]) == ("success", "inactive")


def test_nothing_left_after_the_filter_ends_the_cycle_quietly_as_a_success(bench: Bench) -> None:
    """JOB-205, JOB-208"""
    bench.job(ALL_HOOKS + "\nfunction filter_item() { return null }", ALL_DEFER, webhook=HOOK)
    bench.iterate()
    assert called(bench)[-4:] == ["after_extract", "on_success", "on_finally", "on_finished"]
    assert bench.outcomes() == [("success", "")]
    assert bench.posted == []


def test_items_that_are_all_known_are_not_announced(bench: Bench) -> None:
    """JOB-206, JOB-801"""
    bench.job(ALL_HOOKS, ALL_DEFER, webhook=HOOK)
    bench.iterate()
    bench.logs.clear()
    bench.iterate()
    assert "before_store" in called(bench)
    assert not {"before_notify", "before_webhook"} & set(called(bench))
    assert len(bench.posted) == 1
    assert bench.outcomes() == [("success", "")] * 2


@pytest.mark.parametrize(
    ("hook", "status", "names", "posts"),
    [
        ("before_fetch", "skipped", [], 0),
        ("after_fetch", "skipped", [], 0),
        ("override_extract", "success", [], 0),
        ("after_extract", "skipped", [], 0),
        ("filter_item", "success", [], 0),
        ("before_store", "skipped", [], 0),
        ("before_notify", "success", ["one", "two"], 1),
        ("before_webhook", "success", ["one", "two"], 0),
    ],
)
def test_what_null_means_of_each_hook(bench: Bench, hook: str, status: str, names: list[str], posts: int) -> None:
    """JOB-208, JOB-304"""
    bench.job(f"function {hook}() {{ return null }}", ALL_DEFER, webhook=HOOK)
    bench.iterate()
    assert (bench.outcomes(), bench.names(), len(bench.posted)) == ([(status, "")], names, posts)
    assert called(bench) == ["on_success", "on_finally", "on_finished"]
    assert bool(bench.requests) == (hook != "before_fetch")
    notified = bench.rows("SELECT id FROM monitor_outbox WHERE channel = 'notification'")
    assert bool(notified) == (bool(names) and hook != "before_notify")


@pytest.mark.parametrize("hook", PIPELINE_HOOKS)
def test_a_hook_that_throws_is_passed_over_and_shows_as_an_error_of_its_stage(bench: Bench, hook: str) -> None:
    """JOB-306, JOB-1109"""
    bench.job(f"function {hook}() {{ throw new Error('oops') }}", ALL_DEFER, webhook=HOOK)
    bench.iterate()
    fatal, empty = hook == "override_fetch", hook == "override_extract"
    assert [row[0] for row in bench.outcomes()] == ["error" if fatal else "success"]
    assert bench.names() == ([] if fatal or empty else ["one", "two"])
    assert called(bench)[0] == ("on_error" if fatal else "on_success")
    stage = bench.stages()["filter" if hook == "filter_item" else hook]
    assert stage["status"] == "error"
    assert "oops" in stage["error"]


def test_a_lifecycle_hook_that_throws_is_only_logged_and_the_later_ones_run(bench: Bench) -> None:
    """JOB-306, JOB-209"""
    throws = ALL_DEFER.replace("log('on_success')", "log('on_success'); throw new Error('late')")
    bench.job(None, throws)
    bench.iterate()
    assert called(bench) == ["on_success", "on_finally", "on_finished"]
    assert bench.outcomes() == [("success", "")]
    assert any("late" in line for line in bench.logs)


@pytest.mark.parametrize(
    ("page", "keys", "error"),
    [
        (OSError("connection refused"), {}, "connection refused"),
        ((503, "<li class=i><b>error page</b></li>"), {}, "http status: 503"),
        ("<p>", {"selector": "li["}, 'bad CSS selector "li["'),
    ],
)
def test_fatal_errors_end_the_cycle_with_on_error_once(
    bench: Bench, page: object, keys: dict[str, str], error: str
) -> None:
    """JOB-307, JOB-209, JOB-211"""
    defer = ALL_DEFER.replace("on_error() { log('on_error') }", "on_error(err) { log('on_error'); log('>' + err) }")
    bench.job(None, defer, **keys)
    bench.pages["http://s/page"] = page  # type: ignore[assignment]
    bench.iterate()
    assert called(bench) == ["on_error", "on_finally", "on_finished"]
    (told,) = [line[1:] for line in bench.logs if line.startswith(">")]
    assert error in told
    assert [(status, error in text) for status, text in bench.outcomes()] == [("error", True)]
    assert bench.names() == []


def test_after_fetch_may_answer_for_a_failed_fetch(bench: Bench) -> None:
    """JOB-307"""
    bench.pages["http://s/page"] = (403, "<li class=i><b>login</b></li>")
    bench.job("function after_fetch(f) { return f.ok ? f : {response: {body: '<li class=i><b>mended</b></li>'}} }", "")
    bench.iterate()
    assert bench.names() == ["mended"]
    assert bench.outcomes() == [("success", "")]


def test_a_page_that_has_not_changed_stores_nothing_and_is_a_success(bench: Bench) -> None:
    """JOB-1302"""
    bench.pages["http://s/page"] = (304, "")
    bench.job(ALL_HOOKS, ALL_DEFER)
    bench.iterate()
    assert called(bench) == ["before_fetch", "on_success", "on_finally", "on_finished"]
    assert bench.outcomes() == [("skipped", "")]


def test_only_a_cycle_that_went_to_its_end_remembers_the_page_as_seen(bench: Bench) -> None:
    """JOB-1302"""
    bench.job()
    bench.iterate()
    bench.job("function before_store() { return null }")
    bench.iterate()
    bench.pages["http://s/page"] = OSError("gone")
    bench.iterate()
    assert [one["validators"] for one in bench.conclusions] == [{"etag": "x"}, None, None]


def test_request_headers_are_browser_like_then_the_jobs_then_the_hooks(bench: Bench) -> None:
    """JOB-403"""
    bench.job("function before_fetch(r) { r.headers['X-Hook'] = '1'; return r }", headers={"user-agent": "mine"})
    bench.iterate()
    (request,) = bench.requests
    names = {name.lower(): value for name, value in request["headers"].items()}
    assert len(names) == len(request["headers"])
    assert (names["user-agent"], names["x-hook"], "text/html" in names["accept"]) == ("mine", "1", True)
    assert (request["timeout"], request["max_body_size"], request["method"]) == (30, 10, "GET")


def test_after_extract_sees_all_items_also_those_the_keywords_drop(bench: Bench) -> None:
    """JOB-604, JOB-601"""
    bench.job("function after_extract(items, ctx) { log('saw ' + items.length); return items }", keywords=["TWO"])
    bench.iterate()
    assert "saw 2" in bench.logs
    assert bench.names() == ["two"]


def test_filter_item_switches_the_keyword_filter_off_and_kept_items_are_tagged_as_they_are_now(bench: Bench) -> None:
    """JOB-418"""
    bench.job("function filter_item(i) { i.fields.name += ' rust'; return i }", keywords=["rust", "two"])
    bench.iterate()
    rows = bench.rows("SELECT matches_json FROM monitor_records ORDER BY id")
    assert [json.loads(str(row[0])) for row in rows] == [["rust"], ["rust", "two"]]


def test_selector_matches_counts_what_extraction_found(bench: Bench) -> None:
    """JOB-510"""
    bench.job("function before_store(items, ctx) { log('n=' + ctx.selector_matches); return items }", keywords=["two"])
    bench.iterate()
    assert "n=2" in bench.logs
    bench.job(
        "function override_extract() { return [{fields: {name: 'z'}}] }",
        "function on_finally(ctx) { log('n=' + ctx.selector_matches) }",
    )
    bench.iterate()
    assert "n=1" in bench.logs


def test_links_are_relative_to_where_the_page_really_was(bench: Bench) -> None:
    """JOB-508"""
    bench.job(
        """const PAGE = '<li class=i><b>x</b><a href=c>y</a>';
        function override_fetch() { return {status: 200, body: PAGE, url: 'http://moved/a/b'} }"""
    )
    bench.iterate()
    assert json.loads(str(bench.rows("SELECT fields_json FROM monitor_records")[0][0]))["link"] == "http://moved/a/c"


def test_telemetry_is_complete_when_lifecycle_hooks_see_it(bench: Bench) -> None:
    """JOB-1106, JOB-1111, JOB-806"""
    bench.job(
        None,
        "function on_success(ctx) { const t = ctx.telemetry; log([t.job_name, t.total_duration_ms, t.start_time,"
        " t.map.webhook.status, t.map.store === t.stages.find(s => s.name === 'store')].join()) }",
        webhook=HOOK,
    )
    began = bench.clock.now() / 1_000_000
    bench.sink_works = False
    bench.iterate()
    (line,) = [line for line in bench.logs if line.startswith("Job,")]
    name, duration, start, webhook, same = line.split(",")
    assert (name, duration, float(start), webhook, same) == ("Job", "5", began, "error", "true")


def test_what_the_scripts_announce_without_a_command_is_said_in_the_log_and_kept(bench: Bench) -> None:
    """JOB-812"""
    bench.job("function before_store(items) { notify('Hi', 'there'); return items }", notification={"enabled": False})
    bench.iterate()
    assert "notification: Hi\nthere" in bench.logs
    assert bench.rows("SELECT status, attempts FROM monitor_outbox") == [("sent", 0)]


def test_a_webhook_gets_what_before_webhook_returned_whatever_its_shape(bench: Bench) -> None:
    """JOB-802, JOB-803, JOB-821"""
    bench.job(
        """function before_notify(items) { return items.slice(1) }
        function before_webhook(p) {
          return [p.items[0].name, p.items[1].fields.name, p.items.length, p.item_count];
        }""",
        webhook=HOOK,
    )
    bench.iterate()
    assert bench.posted == [("job/1/1", '["one","two",2,2]')]
    rows = bench.rows("SELECT payload_json FROM monitor_outbox WHERE channel = 'notification'")
    assert json.loads(str(rows[0][0]))["title"] == "New match from Job"


def test_nothing_is_marked_as_seen_that_before_store_held_back(bench: Bench) -> None:
    """JOB-710, JOB-711"""
    bench.job("function before_store() { return false }")
    bench.iterate()
    bench.job("function before_store(items) { return items.slice(1) }")
    bench.iterate()
    assert bench.names() == ["two"]
    bench.job()
    bench.iterate()
    assert bench.names() == ["two", "one"]


def test_duplicates_in_one_batch_collapse_to_the_first_and_new_items_keep_their_order(bench: Bench) -> None:
    """JOB-705, JOB-706"""
    bench.job(
        """function override_extract() { return ['b', 'a', 'b'].map((name, n) => ({fields: {name, n}})) }
        function before_webhook(p) { log(p.items.map(i => i.name + i.n).join()); return p }""",
        hash_fields=["name"],
        webhook=HOOK,
    )
    bench.iterate()
    assert "b0,a1" in bench.logs


def test_two_jobs_of_a_site_do_not_mute_each_other(bench: Bench) -> None:
    """JOB-708"""
    bench.job(name="Job")
    bench.iterate()
    bench.job(name="Other")
    bench.iterate(job="other")
    assert bench.names() == ["one", "two"] * 2


def test_records_tell_fields_hash_matches_job_cycle_and_time(bench: Bench) -> None:
    """JOB-709"""
    bench.job(keywords=["one"])
    bench.iterate()
    (row,) = bench.rows(
        "SELECT job_id, cycle_id, matches_json, fields_json, length(hash), created_at FROM monitor_records"
    )
    fields = {"name": "one", "link": "http://s/one"}
    assert row == ("job", "job/1/1", '["one"]', json.dumps(fields), 64, bench.clock.now())


def test_pages_of_a_queue_are_taken_in_order_each_a_cycle_with_a_ctx_of_its_own(bench: Bench) -> None:
    """JOB-1201, JOB-1202, JOB-1203, JOB-1206, JOB-1208"""
    urls = [f"http://s/{n}" for n in range(5)]
    bench.pages |= {url: f"<li class=i><b>{url[-1]}</b></li>" for url in urls}
    bench.pages["http://s/1"] = OSError("down")
    bench.job(
        "function before_fetch(r, ctx) { log([ctx.worker_id, r.url.slice(-1), ctx.shared.n ?? '-'].join(':'));"
        " ctx.shared.n = 1; return r }",
        "async function on_finished() { log('finished ' + await store_get('cycles')) }\n" + COUNT,
        urls=urls,
        workers=2,
    )
    bench.iterate()
    assert [line for line in bench.logs if line[1:2] == ":"] == ["1:0:-", "2:1:-", "1:2:-", "2:3:-", "1:4:-"]
    assert [row[0] for row in bench.outcomes()].count("error") == 1
    assert bench.names() == ["0", "2", "3", "4"]
    assert [line for line in bench.logs if line.startswith("finished")] == ["finished 5"]


def test_without_a_queue_every_worker_watches_the_one_page(bench: Bench) -> None:
    """JOB-1201, JOB-1203"""
    bench.job("function before_fetch(r, ctx) { log('w' + ctx.worker_id); return r }", workers=3)
    bench.iterate()
    assert [line for line in bench.logs if line.startswith("w")] == ["w1", "w2", "w3"]
    assert bench.names() == ["one", "two"]


def test_more_workers_than_pages_have_nothing_to_do(bench: Bench) -> None:
    """JOB-1208"""
    bench.job(None, ALL_DEFER, urls=["http://s/page"], workers=9)
    bench.iterate()
    assert called(bench) == ["on_success", "on_finally", "on_finished"]


def test_an_iteration_keeps_the_version_it_began_with_and_a_broken_edit_changes_nothing(bench: Bench) -> None:
    """JOB-1507"""
    bench.job("function before_fetch(r) { log('old'); return r }")
    begun = bench.step("w9", "begin", job="job").value
    bench.job("function before_fetch(r) { log('new'); return r }")
    plan, (cycle,) = begun["plan"], begun["cycles"]
    given = {"plan": plan, "cycle": cycle, "request": begun["requests"]["http://s/page"], "started_at": 1}
    bench.step("w9", "request", **given)
    assert "old" in bench.logs
    bench.iterate()
    assert "new" in bench.logs
    bench.logs.clear()
    bench.job("function before_fetch(r) {")
    bench.iterate()
    assert "new" in bench.logs
    assert any("the job is broken" in line for line in bench.logs)
    bench.job(interval=0)
    bench.iterate()
    assert any("job.interval must be >= 1" in line for line in bench.logs)


def test_a_job_that_is_switched_off_begins_no_iteration_by_itself(bench: Bench) -> None:
    """JOB-113"""
    bench.job(enabled=False)
    assert bench.step("w9", "begin", job="job", scheduled=True).value == {"disabled": True, "interval": 600_000_000}
    assert bench.step("w8", "begin", job="job").value["plan"]["iteration_id"] == "job/1"


def test_hooks_that_are_not_there_cost_no_isolate_and_show_as_inactive(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-114"""

    def started(*_: object) -> None:
        raise AssertionError("an isolate was started")

    monkeypatch.setattr("engine.lifecycle.hooks.HookIsolate", started)
    bench.job(webhook=HOOK)
    bench.iterate()
    assert bench.names() == ["one", "two"]
    assert bench.stages()["after_fetch"]["status"] == "inactive"


def test_debug_in_the_job_leaves_page_and_fields_beside_it(bench: Bench) -> None:
    """JOB-1506"""
    bench.job(debug=True)
    bench.iterate()
    folder = bench.folder / "jobs" / "job"
    assert "<b>one</b>" in (folder / "job-response.html").read_text()
    assert [item["fields"]["name"] for item in json.loads((folder / "job-fields.json").read_text())] == ["one", "two"]


def test_a_cycle_whose_op_was_given_up_ends_with_its_iteration(bench: Bench) -> None:
    """JOB-222"""
    bench.job(None, ALL_DEFER, workers=2)
    begun = bench.step("w1", "begin", job="job").value
    given = {"plan": begun["plan"], "cycle": begun["cycles"][0]}
    # its fetch came to nothing: there is no result
    bench.step("w1", "process", **given)
    bench.step("w1", "conclude", **given)
    bench.step("w1", "finished", plan=begun["plan"])
    assert [status for status, _ in bench.outcomes()] == ["error", "error"]
    assert all("given up" in str(error) for _, error in bench.outcomes())
    assert called(bench) == ["on_error", "on_finally", "on_finished"]


def test_old_iterations_are_forgotten_but_for_their_records(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOB-223"""
    monkeypatch.setattr("engine.lifecycle.ledger.KEPT_ITERATIONS", 2)
    bench.job(webhook=HOOK)
    for number in range(4):
        bench.pages["http://s/page"] = f"<li class=i><b>{number}</b></li>"
        bench.sink_works = number > 0
        bench.iterate()
    assert bench.rows("SELECT number FROM monitor_iterations ORDER BY number") == [(3,), (4,)]
    assert bench.rows("SELECT iteration_id FROM monitor_cycles ORDER BY 1") == [("job/3",), ("job/4",)]
    assert bench.names() == ["0", "1", "2", "3"]
    waiting = bench.rows("SELECT id, status FROM monitor_outbox WHERE channel = 'webhook' ORDER BY id")
    assert waiting == [("job/1/1", "pending"), ("job/3/1", "sent"), ("job/4/1", "sent")]


def test_a_site_in_postgresql_keeps_the_same_rules(pg_url: str, tmp_path: Path) -> None:
    """JOB-220, JOB-709"""
    bench = Bench(tmp_path, PostgresqlDatabase(pg_url))
    urls = ["http://s/page", "http://s/b", "http://s/c"]
    bench.pages |= {"http://s/b": PAGE, "http://s/c": "<li class=i><b>three</b></li>"}
    odd = "function before_store(items) { for (const i of items) i.fields.odd = 'a\\0\\ud800'; return items }"
    bench.job(f"{ALL_HOOKS}\n{odd}", ALL_DEFER + COUNT, urls=urls, webhook=HOOK)
    for _ in range(2):
        bench.iterate()
    assert bench.names() == ["one", "two", "three"]
    assert [row[0] for row in bench.outcomes()] == ["success"] * 6
    assert bench.rows("SELECT value FROM monitor_kv") == [("6",)]
    assert len(bench.posted) == 2
    bench.close()
