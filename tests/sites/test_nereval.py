"""The assessor: list pages behind form state, every property once, its tables as the saved pages have them."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from engine.resources import resource
from tests.cli.console import Ran
from tests.sites.pages import Crawler, Row, Served, saved

TOWN = "North Harbor"
LISTS = {number: saved("nereval", f"list-{number}.html") for number in (1, 2, 3)}
DETAILS = {
    path.stem.removeprefix("detail-"): path.read_text(encoding="utf-8")
    for path in sorted((resource("sites") / "nereval" / "fixtures").glob("detail-*.html"))
}
NEXT = {"__EVENTTARGET": "ctl00$PropertyList$GridView1", "__EVENTARGUMENT": "Page$Next"}

_OF_PROPERTY = "FROM {0} x JOIN properties p ON p.id = x.property_id"
QUERIES = {
    "properties": "SELECT account, map_lot, location, url, state_code, card FROM properties p",
    **{
        table: f"SELECT p.account, x.number, {columns} {_OF_PROPERTY.format(table)}"
        for table, columns in {
            "owners": "name",
            "mailing_lines": "text",
            "assessments": "fiscal_year, land, building, outbuilding, total",
            "buildings": "design, year_built, heat, rooms, bedrooms, bathrooms, living_area",
            "sales": "sold_on, price, legal_reference, instrument",
            "sub_areas": "name, area",
            "land": "area, neighborhood",
        }.items()
    },
}


class _Page(HTMLParser):
    """The cells of a page's tables by table id, its links, and the fields of its form."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.links: list[str] = []
        self.fields: dict[str, str] = {}
        self._inside: list[str] = []
        self._cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "table":
            self._inside.append(named.get("id", ""))
            self.tables[self._inside[-1]] = []
        elif tag == "tr":
            self.tables[self._inside[-1]].append([])
        elif tag in ("td", "th"):
            self._cell = []
        elif tag == "a":
            self.links.append(named["href"])
        elif tag == "input" and named["type"] != "submit":
            self.fields[named["name"]] = named["value"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._inside.pop()
        elif tag in ("td", "th") and self._cell is not None:
            self.tables[self._inside[-1]][-1].append("".join(self._cell).replace("\xa0", " ").strip())
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def pairs(self, table: str) -> dict[str, str]:
        """A table of label, value, label, value."""
        cells = [cell for row in self.tables[table] for cell in row]
        return dict(zip(cells[::2], cells[1::2], strict=True))

    def data(self, table: str) -> list[list[str]]:
        """The rows below the header, none where there is no such table."""
        return self.tables.get(table, [])[1:]


def listed(page: int) -> list[tuple[str, str, str, str]]:
    """The rows of a list page: account, link, map and lot, location."""
    parsed = _Page(LISTS[page])
    links = [link for link in parsed.links if link.startswith("PropertyDetail.aspx?")]
    rows = [row for row in parsed.data("PropertyList_GridView1") if row and row[0] == "View"]
    return [
        (dict(parse_qsl(urlsplit(link).query))["accountnumber"], link, row[1], row[3])
        for link, row in zip(links, rows, strict=True)
    ]


def accounts(pages: int = 3) -> list[str]:
    """The properties on the first pages, each once, in the order of the list."""
    return list(dict.fromkeys(row[0] for page in range(1, pages + 1) for row in listed(page)))


def _maybe(text: str) -> str | None:
    return text or None


def _number(text: str) -> float | None:
    digits = re.sub(r"[$,]| SF$", "", text)
    return float(digits) if digits else None


def _day(text: str) -> str | None:
    if not text:
        return None
    month, day, year = text.split("/")
    return f"{year}-{int(month):02}-{int(day):02}"


def _of_property(page: _Page) -> dict[str, list[Row]]:
    place, value = page.pairs("LocationOwner_Location"), page.pairs("Assessment_Assessment")
    building, land = page.pairs("BuildingInformation_Building"), page.pairs("LandInformation_Land")
    year, *amounts = value.values()
    prior = [(int(cells[0]), *map(_number, cells[1:])) for cells in page.data("PriorInformation_GridView2")]
    design, built, heat, *sizes = building.values()
    return {
        "owners": [(place[label],) for label in ("Owner", "Owner2", "Owner3") if place[label]],
        "mailing_lines": [(place[label],) for label in ("Address", "Address2", "Address3") if place[label]],
        "assessments": [*prior, (int(year), *map(_number, amounts))],
        "buildings": [(design, _number(built), _maybe(heat), *map(_number, sizes))] if design else [],
        "sales": [
            (_day(day), _number(price), _maybe(reference), _maybe(instrument))
            for day, price, reference, instrument in page.data("SaleInformation_Sales")
        ],
        "sub_areas": [(name, _number(area)) for name, area in page.data("SubArea_SubArea")],
        "land": [(_number(land["Land Area"]), _maybe(land["Neighborhood"]))],
    }


def golden(base: str, pages: int = 3, lost: tuple[str, ...] = ()) -> dict[str, list[Row]]:
    """All tables after a crawl of the first pages, when the details of ``lost`` were not to be had."""
    tables: dict[str, list[Row]] = {table: [] for table in QUERIES}
    rows = {row[0]: row for page in range(pages, 0, -1) for row in listed(page)}
    for account in sorted(rows):
        _, link, map_lot, location = rows[account]
        parsed = _Page(DETAILS[account])
        parcel = parsed.pairs("ParcelID_ParcelID")
        known = (None, None) if account in lost else (parcel["State Code"], int(parcel["Card"]))
        tables["properties"].append((account, map_lot, location, f"{base}/{link}", *known))
        if account in lost:
            continue
        for table, found in _of_property(parsed).items():
            tables[table] += [(account, number, *columns) for number, columns in enumerate(found, 1)]
    return tables


@dataclass(slots=True)
class Assessor:
    """A running server that hands out list pages as ASP.NET does: the next one only for the last one's form state."""

    details: Mapping[str, str]
    url: str = ""
    pages: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    refused: int = 0

    def open(self, path: str, query: str, form: dict[str, str] | None) -> str | None:
        """The page at a path; None refuses."""
        asked = dict(parse_qsl(query))
        if asked["town"] != TOWN:
            return None
        if path == "/PropertyDetail.aspx":
            self.asked.append(asked["accountnumber"])
            return self.details.get(asked["accountnumber"])
        if form is not None and form != _Page(LISTS[self.pages[-1]]).fields | NEXT:
            self.refused += 1
            return None
        self.pages.append(1 if form is None else self.pages[-1] + 1)
        return LISTS[self.pages[-1]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextlib.contextmanager
def serve(assessor: Assessor) -> Iterator[Assessor]:
    """Run ``assessor`` on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])).decode("ascii")
            fields = parse_qs(sent, keep_blank_values=True, strict_parsing=True)
            self._answer({name: values[0] if len(values) == 1 else repr(values) for name, values in fields.items()})

        def _answer(self, form: dict[str, str] | None) -> None:
            target = urlsplit(self.path)
            page = assessor.open(target.path, target.query, form)
            body = (page or "<h1>Runtime Error</h1>").encode()
            self.send_response(400 if page is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet: the tests look at what was asked."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        assessor.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield assessor
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def crawler(tmp_path: Path) -> Crawler:
    return Crawler("nereval", tmp_path)


def seed(crawler: Crawler, assessor: Assessor, *flags: str) -> Ran:
    return crawler.run("seed", Served(assessor.url, assessor.asked), "--town", TOWN, *flags)


def tables(crawler: Crawler) -> dict[str, list[Row]]:
    return {table: crawler.rows(f"{query} WHERE p.town = '{TOWN}' ORDER BY 1, 2") for table, query in QUERIES.items()}


def make_old_database(folder: Path, stale: str) -> None:
    """The site DB as version 1 left it: outdated rows of the property ``stale``, and one of a town nobody crawls."""
    (folder / "sites").mkdir()
    script = resource("sites") / "nereval" / "migrations" / "sql" / "001_properties.sql"
    with closing(sqlite3.connect(folder / "sites" / "nereval.db")) as database, database:
        database.executescript(script.read_text(encoding="utf-8"))
        database.execute("CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)")
        database.execute("INSERT INTO schema_migrations VALUES (1, 'properties', '2024-01-01T00:00:00Z')")
        for number, town in enumerate(("Elsewhere", TOWN), 1):
            row = (number, town, stale, "0/0", "1 OLD RD", "http://old.example/", "99", 7)
            database.execute("INSERT INTO properties VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            for sale, (day, price) in enumerate((("7/4/1998", 90), ("11/30/2019", 250), (None, 0), ("unknown", 1)), 1):
                database.execute("INSERT INTO sales VALUES (?, ?, ?, ?, NULL, NULL)", (number, sale, day, price))
        database.execute("INSERT INTO owners VALUES (2, 1, 'SOMEBODY ELSE'), (2, 9, 'NOBODY')")


def error_code(crawler: Crawler, op: str) -> str:
    with closing(sqlite3.connect(crawler.folder / "engine.db")) as engine:
        (error,) = engine.execute("SELECT error_json FROM results WHERE op_id = ?", (op,)).fetchone()
    return str(json.loads(error)["Code"])


def test_the_saved_pages_have_what_real_ones_have() -> None:
    rows = [[row[0] for row in listed(page)] for page in LISTS]
    assert sorted(accounts()) == sorted(DETAILS)
    assert len(set(rows[0])) < len(rows[0])  # two owners, listed one after the other
    assert set(rows[0]) & set(rows[1])  # and across the end of a page
    assert set(rows[0]) & set(rows[2])
    states = [_Page(page).fields["__VIEWSTATE"] for page in LISTS.values()]
    assert len(set(states)) == 3
    assert all(set("+/=") <= set(state) for state in states), "a state needs encoding"
    expected = golden("http://assessor.example")
    for table in ("buildings", "sales", "sub_areas"):
        assert {row[0] for row in expected[table]} < set(DETAILS), f"a property without {table}"
    assert {len(_of_property(_Page(page))["assessments"]) for page in DETAILS.values()} == {1, 6}
    assert any(row[2] is None for row in expected["sales"])
    assert any("&" in row[2] for row in expected["properties"])
    assert not all(row[2].isascii() for row in expected["owners"])


def test_the_server_refuses_any_form_but_the_last_pages() -> None:
    assessor, query = Assessor(DETAILS), f"town={TOWN}&Search="
    first, second, third = (_Page(page).fields | NEXT for page in LISTS.values())

    def post(form: dict[str, str]) -> str | None:
        return assessor.open("/PropertyList.aspx", query, form)

    assert assessor.open("/PropertyList.aspx", query, None) == LISTS[1]
    assert post(second) is post(third) is post(first | {"__VIEWSTATE": second["__VIEWSTATE"]}) is None
    assert post(first) == LISTS[2]
    assert post(first) is None
    assert (assessor.pages, assessor.refused) == ([1, 2], 4)


def test_three_pages_in_one_process_bring_an_old_database_up_to_date(crawler: Crawler) -> None:
    make_old_database(crawler.folder, stale=accounts()[0])
    with serve(Assessor(DETAILS)) as assessor:
        ran = seed(crawler, assessor, "--max-pages", "9", "--wait")
        assert ran.code == 0, ran.err
    assert (assessor.pages, assessor.refused) == ([1, 2, 3], 0)
    assert sorted(assessor.asked) == sorted(DETAILS), "each once"
    assert tables(crawler) == golden(assessor.url)
    statuses = crawler.statuses()
    assert set(statuses.values()) == {"succeeded"}
    assert len(statuses) == 1 + 2 * len(LISTS) + 2 * len(DETAILS)
    new = [len(set(accounts(page)) - set(accounts(page - 1))) for page in LISTS]
    assert [crawler.result(f"extract:list:{page}") for page in LISTS] == [
        {"page": page, "rows": len(listed(page)), "details": new[page - 1], "next": page < 3} for page in LISTS
    ]
    dated = [("1998-07-04", 90), ("2019-11-30", 250), (None, 0), (None, 1)]
    sales = "SELECT sold_on, price FROM sales JOIN properties p ON p.id = property_id WHERE town = 'Elsewhere'"
    assert crawler.rows(sales) == dated, "dates of a property that was not crawled, by the migration"
    assert crawler.rows("SELECT sold_on, price FROM latest_sales WHERE town = 'Elsewhere'") == [dated[1]]


def test_two_pages_submitted_here_and_worked_there_without_the_details_that_are_lost(crawler: Crawler) -> None:
    gone, other, *_ = accounts(1)
    details = {account: page for account, page in DETAILS.items() if account != gone}
    details[other] = "<html><body><h1>Runtime Error</h1></body></html>"
    with serve(Assessor(details)) as assessor:
        submitted = seed(crawler, assessor, "--max-pages", "2")
        assert submitted.code == 0, submitted.err
        assert (assessor.pages, assessor.asked) == ([], [])
        assert crawler.work().code == 1
    assert (assessor.pages, assessor.refused) == ([1, 2], 0), "no further than asked"
    assert sorted(assessor.asked) == sorted(accounts(2))
    assert tables(crawler) == golden(assessor.url, pages=2, lost=(gone, other))
    statuses = crawler.statuses()
    assert {op: status for op, status in statuses.items() if status != "succeeded"} == {
        f"fetch:detail:{gone}": "failed",
        f"extract:detail:{gone}": "canceled",
        f"extract:detail:{other}": "failed",
    }
    assert len(statuses) == 1 + 2 * 2 + 2 * len(accounts(2))
    assert error_code(crawler, f"extract:detail:{other}") == "unexpected_page"
