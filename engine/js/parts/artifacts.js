// Artifacts as scripts see them and write them.
"use strict";
(function ({ $ask, $host, $JSON, $json, $push, $String, $TypeError, $hide, $defineProperty, $asBytes, $bytesToText, $textToBytes, $session }) {
  const view = (function (stored) {
    const shown = {
      id: stored.id,
      name: stored.name,
      kind: stored.kind,
      contentType: stored.contentType,
      metadata: stored.metadata,
    };
    let text = stored.text;
    const charset = stored.metadata && stored.metadata.charset;
    const declared = charset ? `${stored.contentType}; charset=${charset}` : stored.contentType;
    $defineProperty(shown, "bodyText", {
      enumerable: true,
      configurable: true,
      get() {
        if (text === undefined) {
          const where = [stored.sha256, declared];
          text = $host("text", $JSON.stringify(where));
          $push($session.given, { text, where });
        }
        return text;
      },
    });
    $hide(shown, "size", stored.size);
    $hide(shown, "bodyBytes", () =>
      stored.sha256 === undefined ? new TextEncoder().encode(text) : $textToBytes($host("blob", stored.sha256)),
    );
    return shown;
  });

  function write(spec) {
    if (spec === null || typeof spec !== "object") throw new $TypeError("writeArtifact expects an object");
    const { body, ...rest } = spec;
    if (body === undefined || body === null) throw new $TypeError("writeArtifact: the artifact has no body");
    const bytes = $asBytes(body);
    const payload = bytes === null ? { $text: $String(body) } : { $bytes: $bytesToText(bytes) };
    return $ask("artifact", [$JSON.parse($json(rest, "artifact")), payload]);
  }

  return { view, write };
});
