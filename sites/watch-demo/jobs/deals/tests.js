function item(off) {
  return { fields: { number: "1", name: "Kettle", off, link: "" }, matches: [] };
}

function test_every_item_gets_its_percentage() {
  const ctx = { shared: {} };
  const [first] = after_extract([item("-25 %")], ctx);
  spyweb.assert_eq(first.fields.percent, 25);
  spyweb.assert_eq(ctx.shared.seen, 1);
}

function test_small_deals_are_dropped() {
  const small = { fields: { percent: "15" } };
  const large = { fields: { percent: "20" } };
  spyweb.assert_eq(filter_item(small), null);
  spyweb.assert_eq(filter_item(large), large);
}

async function test_cycles_are_counted() {
  const ctx = { shared: { seen: 3 }, telemetry: { total_duration_ms: 1 } };
  await on_success(ctx);
  await on_success(ctx);
  spyweb.assert_eq(await store_get("cycles"), "2");
}
