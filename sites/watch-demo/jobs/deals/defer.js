// Counted for ever, exactly once a cycle, whatever crashes in between.
async function on_success(ctx) {
  const cycles = await store_incr("cycles");
  await batch_set("seen", ctx.shared.seen ?? 0);
  log(`cycle ${cycles} took ${Math.round(ctx.telemetry.total_duration_ms)} ms`);
}

function on_error(err, ctx) {
  log(`no deals today: ${err}`);
}

async function on_finished() {
  log(`${await batch_get("seen")} deals on the page`);
}
