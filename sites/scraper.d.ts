// Types of the JavaScript that sites are made of. docs/reference/js-api.md says what everything does.
// A site's jsconfig.json includes this file; then an editor completes and checks scripts, verbs and tests.

/** What JSON can hold. */
type Json = null | boolean | number | string | Json[] | { [name: string]: Json | undefined };

/** A Go duration such as "500ms" or "1m30s", or a number of milliseconds. */
type Duration = string | number;

// ---------------------------------------------------------------------------------------------- scripts and verbs

/** What a script of an op gets. */
interface ScriptContext {
  /** The op's site. */
  readonly site: string;
  /** When the op was claimed: RFC3339, UTC. */
  readonly now: string;
  /** The op's input; null without one. */
  readonly input: any;
  readonly workflow: WorkflowView;
  readonly op: OpView;
  readonly lease: LeaseView;
  /** Writes a line to the op's log, which is kept even if the op fails. */
  log(...values: unknown[]): void;
  /** The result of another op of the workflow; null where it has none yet. */
  dep(opID: string): DepResult | null;
  /** Asks for an op; its id, or that of the op that stands for it by its dedupKey. */
  emit(spec: OpSpec): string;
  /** Upserts a row into the site DB's scraper_records. */
  writeRecord(collection: string, key: string | number, data: unknown): void;
  /** Keeps bytes or a text with the op; the artifact's id. */
  writeArtifact(spec: ArtifactSpec): string;
}

/** What a verb gets. It runs once, when its workflow is submitted. */
interface VerbContext {
  readonly site: string;
  /** The instant of the submission: RFC3339, UTC. */
  readonly now: string;
  /** All values by field name, as declared. */
  readonly values: { readonly [field: string]: any };
  /** The same by section; the verb's own fields are section "default". */
  readonly sections: { readonly [slug: string]: { readonly [field: string]: any } };
  readonly command: {
    readonly name: string;
    readonly fullPath: string;
    readonly function: string;
    readonly module: string;
    readonly sourceFile: string;
  };
  readonly workflow: WorkflowView;
  /** Accepted; the lines are not kept. */
  log(...values: unknown[]): void;
  /** Asks for an op; its id. */
  emit(spec: OpSpec): string;
  /** The op that the command names as its target. */
  setTargetOpID(id: string): void;
  setWorkflowName(name: string): void;
  setWorkflowMetadata(metadata: { [name: string]: unknown }): void;
}

interface WorkflowView {
  readonly id: string;
  readonly site: string;
  readonly name: string;
  readonly status: string;
  readonly input: any;
  readonly metadata: { readonly [name: string]: string };
}

interface OpView {
  readonly id: string;
  readonly workflowID: string;
  readonly site: string;
  readonly kind: string;
  readonly queue: string;
  readonly dedupKey: string;
  readonly metadata: { readonly [name: string]: string };
}

interface LeaseView {
  readonly workerID: string;
  readonly token: string;
  readonly acquiredAt: string;
  readonly expiresAt: string;
}

/** An op that is asked for. */
interface OpSpec {
  /** "http/fetch", "browser/fetch", "js", or another kind that the worker knows. */
  kind: string;
  /** Unique in the workflow; made up where it is left out. */
  id?: string;
  /** Default: the emitter's. */
  site?: string;
  workflowID?: string;
  parentID?: string;
  queue?: string;
  /** An op of the same kind and workflow that holds the key stands for this one. */
  dedupKey?: string;
  /** Of a fetch: {@link FetchInput}. Of a script: whatever it reads as ctx.input. */
  input?: FetchInput | { [name: string]: unknown } | unknown[] | string | number | boolean | null;
  /** Of a script: which one. Values become strings. */
  metadata?: { script?: string; timeout?: Duration; [name: string]: unknown };
  retry?: RetryPolicy;
  dependsOn?: Dependency[];
  /** Not to be started before this much time has passed. */
  delay?: Duration;
  /** Not to be started before: RFC3339, or milliseconds since 1970. */
  notBefore?: string | number;
}

interface Dependency {
  opID: string;
  /** false: any end of the other op will do. */
  required?: boolean | string;
  /** What satisfies the dependency; overrules required. */
  on?: "success" | "terminal" | "settled";
}

interface RetryPolicy {
  /** Of all executions; 0 and 1 mean no retry. */
  maxAttempts?: number;
  backoffKind?: "fixed" | "linear" | "exponential";
  initialBackoff?: Duration;
  maxBackoff?: Duration;
  multiplier?: number;
  /** The share of the pause that is drawn at random, 0 to 1. */
  jitter?: number;
}

/** The input of an op of kind "http/fetch". Texts are templates: {{ .input.page }}. */
interface FetchInput {
  request: {
    url: string;
    method?: string;
    headers?: { [name: string]: string };
    /** Sent as application/x-www-form-urlencoded. */
    form?: { [name: string]: string };
    body?: string;
    timeout?: Duration;
    maxBytes?: number;
    /** false or 0: a redirect is an answer like any other. */
    followRedirects?: boolean | number;
    /** The URL of the proxy of this request. */
    proxy?: string;
    /** Only wanted if it has changed since it was last seen: look at response.notModified. */
    conditional?: boolean;
  };
  /** Keep the response's body as an artifact of kind "http-response-body". */
  persistBody?: boolean;
  artifactName?: string;
  [name: string]: unknown;
}

/** The input of an op of kind "browser/fetch": GET only, redirects are followed. */
interface BrowserFetchInput extends FetchInput {
  browser?: {
    /** Default "load". */
    waitUntil?: "load" | "domcontentloaded" | "networkidle" | "commit";
    /** A selector of an element that has to be there. */
    waitFor?: string;
    /** Default true: what is in view. The artifact is called OP:screenshot. */
    screenshot?: boolean | "full";
  };
}

/** The data of an op of kind "http/fetch". */
interface FetchData {
  request: {
    method: string;
    url: string;
    headers: { [name: string]: string[] };
    bodyText?: string;
    contentType?: string;
  };
  response: {
    statusCode: number;
    /** For example "200 OK". */
    status: string;
    finalURL: string;
    headers: { [name: string]: string[] };
    /** Of the answer 304: the page is as it was; there is no body. */
    notModified?: true;
    contentType?: string;
    contentLength: number;
    bodyArtifactID?: string;
  };
}

/** The result of an op, as ctx.dep shows it. */
interface DepResult {
  readonly opID: string;
  readonly data: any;
  readonly records: { readonly collection: string; readonly key: string; readonly data: any }[];
  /** Sorted by id; the log is among them as "<opID>:execution-log". */
  readonly artifacts: Artifact[];
  readonly emittedIDs: string[];
  readonly completedAt: string;
  /** Unless the op succeeded. */
  readonly error?: OpFailure;
}

interface OpFailure {
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  readonly details: any;
  readonly occurredAt: string;
}

interface Artifact {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly contentType: string;
  readonly metadata: { readonly [name: string]: string };
  /** Decoded by the declared or detected charset. */
  readonly bodyText: string;
  /** The number of bytes. */
  readonly size: number;
  bodyBytes(): Uint8Array;
}

interface ArtifactSpec {
  id?: string;
  name?: string;
  kind?: string;
  contentType?: string;
  metadata?: { [name: string]: unknown };
  body: string | ArrayBuffer | ArrayBufferView;
}

/** What a script may return to fail its op without a throw. */
interface FailedEnvelope {
  error: { code?: string; message?: string; retryable?: boolean; details?: unknown };
}

// -------------------------------------------------------------------------------------------- declarations of verbs

interface VerbField {
  type?:
    | "string"
    | "int"
    | "float"
    | "bool"
    | "choice"
    | "choiceList"
    | "stringList"
    | "intList"
    | "floatList"
    | "date"
    | "file"
    | (string & {});
  help?: string;
  default?: unknown;
  /** A flag of one letter. */
  short?: string;
  choices?: string[];
  required?: boolean;
  /** Given by its place on the command line instead of by a flag. */
  argument?: boolean;
}

interface VerbDeclaration {
  /** The command's name; without it, the function's in kebab-case. */
  command?: string;
  name?: string;
  short?: string;
  long?: string;
  fields?: { [name: string]: VerbField };
  /** Slugs of sections that the file declares. */
  sections?: string[];
  parents?: string[];
  output?: string;
  tags?: string[];
}

/** Declares a function of this file as a verb. In verb files only. */
declare function __verb__(functionName: string, declaration?: VerbDeclaration): void;

/** Declares fields that several verbs of this file share. In verb files only. */
declare function __section__(
  slug: string,
  section: { title?: string; description?: string; fields?: { [name: string]: VerbField } },
): void;

/** What the verbs of this file have in common. In verb files only. */
declare function __package__(declaration: { name?: string; [key: string]: unknown }): void;

/** Long help of the verbs of this file, as a template literal. In verb files only. */
declare function doc(text: string | TemplateStringsArray, ...values: unknown[]): string;

// ------------------------------------------------------------------------------------------------ built-in modules

type SqlParameter = string | number | bigint | boolean | null | undefined | Date | ArrayBuffer | ArrayBufferView | object;

/** BLOBs are Uint8Array. */
interface SqlRow {
  [column: string]: any;
}

/** Parameters are given one by one, or as one array. */
interface SqlQuery {
  <Row = SqlRow>(sql: string, ...params: SqlParameter[]): Row[];
}

/** The database of the site: one transaction an op, committed with its outcome. */
interface SiteDb {
  query: SqlQuery;
  /** Runs one or several statements; the number of rows the last of them changed. */
  exec(sql: string, ...params: SqlParameter[]): number;
  /** The id of the last insert of this execution. */
  lastInsertId(): number | null;
  /** Integers beyond 2^53 come as numbers unless strings are asked for. */
  options(wanted: { bigint?: "string" | "number" }): void;
}

/** The engine's database, to be read only. */
interface ScraperDb {
  query: SqlQuery;
  /** Throws. */
  exec(...ignored: unknown[]): never;
}

/** An element of a parsed page. */
interface HtmlNode {
  readonly tag: string;
  readonly attrs: { readonly [name: string]: string };
  /** All matching descendants, in document order. */
  css(selector: string): HtmlNode[];
  first(selector: string): HtmlNode | null;
  /** The text, its blanks collapsed unless it is wanted raw. */
  text(options?: { deep?: boolean; separator?: string; raw?: boolean }): string;
  attr(name: string): string | null;
  html(): string;
  readonly parent: HtmlNode | null;
  /** The next sibling, which may be a text (tag "-text"). */
  readonly next: HtmlNode | null;
  readonly children: HtmlNode[];
  /** One object a match. Rules: "h2" (text), "a@href" (attribute), "@id" (attribute of the match), "" (its text). */
  extract<Fields extends { [name: string]: string }>(
    selector: string,
    fields: Fields,
  ): { [Name in keyof Fields]: string | null }[];
  /** Rows as objects keyed by the header's cells, or by column number; null where there is no such table. */
  table(selector?: string): { [column: string]: string }[] | null;
  /** Every link; absolute if base is given. */
  links(base?: string): { href: string; text: string }[];
  /** A form as a browser would send it. */
  form(selector?: string): { action: string; method: string; values: { [name: string]: string } } | null;
}

interface HtmlModule {
  /** The root node of a document. */
  parse(text: string): HtmlNode;
  /** An absolute URL. */
  resolve(base: string, href: string): string;
  /** A text without entities. */
  unescape(text: string): string;
}

type HashEncoding = "hex" | "base64";

interface HashBuilder {
  update(data: string | ArrayBuffer | ArrayBufferView): HashBuilder;
  digest(): Uint8Array;
  digest(encoding: HashEncoding): string;
  digest(encoding: "bytes"): Uint8Array;
}

interface CryptoModule {
  randomUUID(): string;
  getRandomValues<Bytes extends ArrayBufferView>(array: Bytes): Bytes;
  /** A digest, in hex unless told otherwise. Algorithms: md5, sha1, sha256, … */
  hash(algorithm: string, data: string | ArrayBuffer | ArrayBufferView, encoding?: HashEncoding): string;
  hash(algorithm: string, data: string | ArrayBuffer | ArrayBufferView, encoding: "bytes"): Uint8Array;
  createHash(algorithm: string): HashBuilder;
}

declare module "site-db" {
  const db: SiteDb;
  export = db;
}

declare module "scraper-db" {
  const db: ScraperDb;
  export = db;
}

declare module "html" {
  const html: HtmlModule;
  export = html;
}

declare module "crypto" {
  const crypto: CryptoModule;
  export = crypto;
}

/** What a migration in JavaScript gets; its writes are one transaction. */
interface MigrationContext {
  query: SqlQuery;
  exec(sql: string, ...params: SqlParameter[]): number;
  hasTable(table: string): boolean;
  hasColumn(table: string, column: string): boolean;
  log(...values: unknown[]): void;
}

// ------------------------------------------------------------------------------------------------------------ tests

/** What a test gets: `function test_something(t)` in a file below tests/. Run by `scraper site test`. */
interface SiteTest {
  /**
   * Submits a verb and works until nothing is left to do; fetches get the recorded pages. Throws if the workflow did
   * not succeed, unless `mayFail` is set.
   */
  run(verb: string, flags?: { [field: string]: unknown }, options?: { mayFail?: boolean }): TestRun;
  /** The records of a collection, by key. */
  records(collection: string): { key: string; data: any }[];
  /** Reads the site DB. */
  query: SqlQuery;
  /** Writes the site DB, at once. */
  exec(sql: string, ...params: SqlParameter[]): number;
  /** The text of a file below fixtures/. */
  fixture(name: string): string;
  /** Shown if the test fails. */
  log(...values: unknown[]): void;
  /** Fails unless both are deeply equal; names the first place where they differ. */
  equal(actual: unknown, expected: unknown, message?: string): void;
  /** Fails unless the value is truthy. */
  ok(value: unknown, message?: string): void;
  /** Fails unless the call throws; what it threw. */
  throws(call: () => unknown, message?: string): any;
}

/** What became of a workflow. */
interface TestRun {
  readonly workflowID: string;
  readonly status: "succeeded" | "failed" | "canceled";
  /** What the verb returned. */
  readonly data: any;
  /** How many ops ended how. */
  readonly ops: { readonly [status: string]: number };
  /** The ops that did not succeed. */
  readonly failures: { readonly op: string; readonly status: string; readonly code: string; readonly message: string }[];
}

// ---------------------------------------------------------------------------------------------------------- globals

declare function require(name: "site-db"): SiteDb;
declare function require(name: "scraper-db"): ScraperDb;
declare function require(name: "html"): HtmlModule;
declare function require(name: "crypto"): CryptoModule;
declare function require(name: string): any;

declare var module: { exports: any; readonly id: string; readonly filename: string; readonly loaded: boolean };
declare var exports: any;
declare const __filename: string;
declare const __dirname: string;
declare var global: typeof globalThis;

/** Lines of the op's log. */
declare const console: {
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  debug(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
};

declare const crypto: CryptoModule;

declare function setTimeout(callback: (...args: any[]) => void, delay?: number, ...args: unknown[]): number;
declare function clearTimeout(id: number): void;
declare function setInterval(callback: (...args: any[]) => void, delay?: number, ...args: unknown[]): number;
declare function clearInterval(id: number): void;
declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<Value>(value: Value): Value;
declare function atob(text: string): string;
declare function btoa(text: string): string;

declare class URL {
  constructor(url: string | URL, base?: string | URL);
  static canParse(url: string | URL, base?: string | URL): boolean;
  static parse(url: string | URL, base?: string | URL): URL | null;
  href: string;
  readonly origin: string;
  protocol: string;
  username: string;
  password: string;
  host: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  readonly searchParams: URLSearchParams;
  hash: string;
  toString(): string;
  toJSON(): string;
}

declare class URLSearchParams implements Iterable<[string, string]> {
  constructor(init?: string | Iterable<readonly [string, unknown]> | { [name: string]: unknown });
  append(name: string, value: unknown): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: unknown): void;
  sort(): void;
  forEach(callback: (value: string, name: string, params: URLSearchParams) => void, self?: unknown): void;
  readonly size: number;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
  toString(): string;
}

declare class TextEncoder {
  readonly encoding: "utf-8";
  encode(text?: string): Uint8Array;
}

declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(bytes?: ArrayBuffer | ArrayBufferView): string;
}
