// Run with: scraper site test {{name}}

/** @param {SiteTest} t */
function test_every_item_is_kept(t) {
  t.run("crawl");
  t.equal(t.query("SELECT id, title, price, url FROM items ORDER BY id"), [
    { id: "1", title: "Lantern", price: 12.5, url: "https://{{name}}.example/items/1" },
    { id: "2", title: "Rope, 20 m", price: 8, url: "https://{{name}}.example/items/2" },
    { id: "3", title: "Map of the moor", price: null, url: "https://{{name}}.example/items/3" },
  ]);
  t.equal(t.records("lists"), [{ key: "https://{{name}}.example/items", data: { items: 3 } }]);
}

/** @param {SiteTest} t */
function test_a_second_crawl_changes_nothing(t) {
  t.run("crawl");
  const before = t.query("SELECT * FROM items ORDER BY id");
  t.run("crawl");
  t.equal(t.query("SELECT * FROM items ORDER BY id"), before);
}
