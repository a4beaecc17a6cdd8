// A browser as hooks see it: cdp.launch() -> browser.attach() -> page.
function $browserText(value, name) {
  if (typeof value === "string" && value !== "") return value;
  throw new $TypeError(name + " must be a string that is not empty");
}

function $browserOptions(value, name, known) {
  if (value === undefined || value === null) return {};
  if (!$isTable(value) || $isArray(value)) throw new $TypeError(name + ": the options must be an object");
  for (const key of $keys(value)) {
    if (!known.includes(key)) throw new $TypeError(name + ': the option "' + key + '" is not known: ' + known.join(", "));
  }
  return value;
}

// Asynchronous functions of an object: failures are rejections, but for those of the place where one is called.
function $browserObject(owner, functions, close) {
  const offered = {};
  for (const [name, run] of Object.entries(functions)) {
    offered[name] = (...values) => {
      $guard(owner + "." + name);
      try {
        return $resolve(run(...values));
      } catch (error) {
        return $Promise.reject(error);
      }
    };
  }
  if (close !== undefined) offered.close = () => void close();
  return Object.freeze(offered);
}

function $browserPage(browser, page) {
  const ask = (what, given) => $later("browser.page", { browser, page, do: what, with: given });
  const timed = (options, name, ...more) => $browserOptions(options, "page." + name, ["timeout", ...more]);
  const selected = (selector, name) => ({ selector: $browserText(selector, "page." + name + ": the selector") });
  const functions = {
    open: (url, options) =>
      ask("open", { ...timed(options, "open", "waitUntil"), url: $browserText(url, "page.open: the URL") }),
    content: () => ask("content", {}),
    eval: (script, argument, options) => {
      const text = typeof script === "function" ? $String(script) : $browserText(script, "page.eval: the script");
      return ask("eval", { ...timed(options, "eval"), script: text, argument });
    },
    wait_for: (selector, options) =>
      ask("wait_for", { ...timed(options, "wait_for", "state"), ...selected(selector, "wait_for") }),
    click: (selector, options) => ask("click", { ...timed(options, "click"), ...selected(selector, "click") }),
    type: (selector, text, options) =>
      ask("type", { ...timed(options, "type"), ...selected(selector, "type"), text: $String(text) }),
    screenshot: (options) => ask("screenshot", timed(options, "screenshot", "fullPage")),
  };
  return $browserObject("page", functions, () => $directly("browser.close_page", { browser, page }));
}

function $browserOf(browser) {
  const attach = (options) =>
    $later("browser.attach", { browser, with: $browserOptions(options, "browser.attach", ["userAgent"]) }).then((page) =>
      $browserPage(browser, page),
    );
  return $browserObject("browser", { attach }, () => $directly("browser.close", browser));
}

$extensions.push(() => {
  const launch = (options) =>
    $later("browser.launch", $browserOptions(options, "cdp.launch", ["headless", "proxy"])).then($browserOf);
  $offer("cdp", $browserObject("cdp", { launch }));
});
