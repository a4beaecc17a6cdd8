"""What a script writes through ``db.query`` is kept like any other write."""

from __future__ import annotations

import pytest

from tests.worker.lab import COUNTERS, Lab, js


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO counter VALUES ('x', 1) RETURNING name",
        "/* why */ WITH one AS (SELECT 'x' AS name) INSERT INTO counter SELECT name, 1 FROM one RETURNING name",
        "UPDATE counter SET name = 'x', n = 1 RETURNING name",
    ],
)
def test_a_write_with_returning_is_kept(lab: Lab, sql: str) -> None:
    """DB-24."""
    lab.write("migrations/001_init.sql", COUNTERS)
    lab.write("scripts/a.js", f"module.exports = () => require('site-db').query(`{sql}`)[0].name;")
    assert lab.run(js("a", "a.js")) == {"a": "succeeded"}
    assert lab.result("a")["data"] == "x"
    assert ("x", 1) in lab.site("SELECT name, n FROM counter")
