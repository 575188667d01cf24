// The audit: torch.compile in the whole suite, by cause and by test.

const KINDS = {
  break: "graph break", recompile: "recompile", limit: "recompile limit", bypass: "cache bypass", eager: "ran eagerly",
  nothing: "nothing compiled",
};
const CAUSES = 20; // causes or changes shown at once; a click shows the rest
const NAMED = 3; // causes named for each test of the table
const COLUMNS = [["graphs", "graphs"], ["ops", "ops"], ["breaks", "breaks"], ["again", "recompiles"], ["seconds", "compile s"]];

// Returns the elements of the first items, and a folded list of the rest.
function firstOf(items, build) {
  const rest = items.slice(CAUSES);
  return [...items.slice(0, CAUSES).map(build), ...(rest.length ? [folded(`${rest.length} more`, () => rest.map(build))] : [])];
}

function sourcePlace(source) {
  return source.file ? element("p", { class: "where" }, name(`${source.file}:${source.line} in ${source.function}`)) : null;
}

// Returns the first test with the rest folded, so that many causes fit on one screen.
function testsOf(ids) {
  if (ids.length === 1) return element("ul", { class: "tests" }, testButton(ids[0]));
  return folded([name(ids[0]), ` and ${ids.length - 1} more`], () => [element("ul", { class: "tests" }, ids.map(testButton))]);
}

function auditCause(cause) {
  const reason = cause.code || cause.text;
  const facts = [plural(cause.tests.length, "test")];
  if (cause.times > cause.tests.length) facts.push(times(cause.times));
  if (cause.without_graph && cause.kind !== "nothing") facts.push(`nothing compiled in ${cause.without_graph}`);
  return element("section", { class: `card cause ${cause.kind}` },
    element("h3", {}, KINDS[cause.kind] || name(cause.kind), " ", element("span", { class: "badge" }, facts.join(", "))),
    reason ? element("p", {}, element(cause.code ? "code" : "span", {}, name(reason))) : null,
    sourcePlace(cause), cause.places.length > 1 ? folded(`${plural(cause.places.length - 1, "more place")}`, () =>
      cause.places.filter((place) => place.line !== cause.line || place.file !== cause.file).map(sourcePlace)) : null,
    testsOf(cause.tests));
}

function auditChange(change, kind) {
  return element("section", { class: `card cause ${kind}` },
    element("h3", {}, name(change.text), " ", element("span", { class: "badge" }, plural(change.tests.length, "test"))),
    change.text.includes(`${change.file}:${change.line}`) ? null : sourcePlace(change), testsOf(change.tests));
}

// Returns the changes from the baseline, or the reason if the audit was not compared.
function auditBaseline(baseline) {
  if (!baseline) return [];
  const verdict = baseline.verdict;
  if (!verdict) return baseline.said.map((line) => element("p", {}, name(line)));
  const testList = (title, ids) => ids.length
    ? [folded(`${plural(ids.length, "test")} ${title}`, () => [element("ul", { class: "tests" }, ids.map(testButton))])] : [];
  const parts = verdict.worse.length
    ? [element("h3", { class: "failed" }, "Worse than ", name(baseline.file)),
      ...firstOf(verdict.worse, (change) => auditChange(change, "worse"))]
    : [element("p", {}, name(baseline.said[0] || ""))];
  if (verdict.better.length) {
    parts.push(folded(`${plural(verdict.better.length, "change")} for the better: record to keep them`,
      () => firstOf(verdict.better, (change) => auditChange(change, "better"))));
  }
  if (verdict.renamed.length) {
    parts.push(folded(`${plural(verdict.renamed.length, "test")} probably renamed`, () => [element("ul", {},
      verdict.renamed.map(([old, now]) => element("li", {}, name(old), " → ", name(now))))]));
  }
  return [...parts, ...testList("not in the baseline yet", verdict.new), ...testList("of the baseline not run", verdict.gone)];
}

// Returns the table of tests with their causes, searchable and sorted by the column whose title is clicked.
function auditTable(audit) {
  const causeByKey = new Map(audit.causes.flatMap((cause) => cause.keys.map((key) => [key, cause])));
  const rows = Object.entries(audit.tests).map(([id, facts]) => {
    const causes = facts.causes.map((key) => causeByKey.get(key)).filter(Boolean);
    const count = (...kinds) => causes.filter((cause) => kinds.includes(cause.kind)).length;
    return { id, causes, graphs: facts.graphs, ops: facts.ops, breaks: count("break"), again: count("recompile", "limit"),
      seconds: facts.seconds, compiles: facts.compiles,
      searched: [id, facts.compiles ? "" : "compiles nothing", ...causes.flatMap((cause) => [KINDS[cause.kind], cause.words])]
        .join("\n").toLowerCase() };
  });
  const bodies = [];
  const note = element("p", { class: "note", role: "status" });
  let order = "seconds";
  const search = element("input", { type: "search", placeholder: "test, cause, line", "aria-label": "search the audited tests",
    oninput: () => fill() });
  const fill = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = rows.filter((row) => wanted.every((word) => row.searched.includes(word)));
    matches.sort((a, b) => (order === "id" ? 0 : b[order] - a[order]) || (a.id < b.id ? -1 : 1));
    for (const body of bodies.splice(0)) body.remove();
    bodies.push(...matches.slice(0, ROWS).map((row) => element("tbody", {},
      element("tr", {}, element("th", { scope: "row" }, testLink(row.id)), COLUMNS.map(([key]) =>
        element("td", { class: "number" }, key === "seconds" ? row[key].toFixed(2) : String(row[key])))),
      element("tr", {}, element("td", { class: "where", colspan: COLUMNS.length + 1 }, causeLines(row))))));
    table.append(...bodies);
    note.textContent = matches.length > ROWS ? `the first ${ROWS} of ${plural(matches.length, "test")}` : plural(matches.length, "test");
    for (const button of heads) button.parentNode.setAttribute("aria-sort", button.dataset.order === order ? "descending" : "none");
  };
  const heads = [["id", "test"], ...COLUMNS].map(([key, title]) =>
    element("button", { "data-order": key, onclick: () => { order = key; fill(); } }, title));
  const table = element("table", { class: "audit" }, element("thead", {}, element("tr", {},
    heads.map((button, number) => element("th", { scope: "col", class: number ? "number" : null }, button)))));
  fill();
  return { parts: [element("h3", {}, "Tests that use torch.compile"), search, note, table],
    filter: (text) => { search.value = text; fill(); search.scrollIntoView({ block: "start" }); } };
}

// Returns the causes of a test, one per line.
function causeLines(row) {
  const lines = row.causes.slice(0, NAMED).map((cause) => name(cause.words));
  if (row.causes.length > NAMED) lines.push(`and ${row.causes.length - NAMED} more`);
  if (!row.compiles && !row.causes.some((cause) => cause.kind === "nothing")) lines.push("compiles nothing");
  return lines.map((line) => element("div", {}, line));
}

function testLink(id) {
  const test = numbered(id);
  return test ? element("button", { onclick: () => select(test.number) }, name(id)) : name(id);
}

// Returns the totals. A click on a total that counts tests or causes filters the table.
function figures(totals, filter) {
  const entries = [[`${thousands(totals.using)} of ${thousands(totals.tests)}`, totals.tests === 1 ? "test uses torch.compile" : "tests use torch.compile", ""],
    [totals.nothing, totals.nothing === 1 ? "compiles nothing" : "compile nothing", totals.nothing && "compile nothing"],
    [totals.graphs, "graphs"], [totals.ops, "ops"], [totals.backwards, "backward graphs"],
    [totals.graph_breaks, "graph breaks", totals.graph_breaks && "graph break"],
    [totals.recompiles, "recompiles", totals.recompiles && "recompile"], [`${thousands(Number(totals.compile_seconds.toFixed(1)))} s`, "compiling"]];
  return element("ul", { class: "figures" }, entries.map(([value, label, query]) => element("li", {},
    element(query ? "button" : "div", query ? { onclick: () => filter(query) } : {},
      element("strong", {}, typeof value === "number" ? thousands(value) : value), element("span", {}, label)))));
}

function auditView(audit) {
  const totals = audit.totals;
  const parts = [element("h2", {}, "torch.compile in this suite")];
  if (audit.broken) {
    parts.push(element("p", { class: "failed" }, "Incomplete audit: ", name(audit.broken)));
  }
  if (!totals.using && audit.broken) return [...parts, ...auditBaseline(audit.baseline)];
  if (!totals.using) {
    parts.push(element("p", {}, `None of ${plural(totals.tests, "test")} uses torch.compile.`));
    return [...parts, ...auditBaseline(audit.baseline)];
  }
  if (audit.isolated) parts.push(element("p", { class: "note" }, "Dynamo was reset before each test."));
  const table = auditTable(audit);
  const slow = audit.functions;
  return [...parts, figures(totals, table.filter), ...auditBaseline(audit.baseline),
    element("h3", {}, audit.causes.length ? "Causes, most costly first" : "Everything compiled: no graph break, no recompile"),
    ...firstOf(audit.causes, auditCause),
    ...(slow.length ? [folded(`${plural(slow.length, "compiled function")}, slowest first`, () => [element("ul", {},
      slow.slice(0, ROWS).map((compiled) => element("li", {}, name(`${compiled.file}:${compiled.line} in ${compiled.function}`),
        ` · ${compiled.seconds.toFixed(2)} s in ${plural(compiled.tests, "test")}`)))])] : []),
    ...(audit.settings_left.length ? [folded(`${plural(audit.settings_left.length, "torch setting")} changed and not restored`, () =>
      [element("ul", {}, audit.settings_left.map((setting) => element("li", {}, element("code", {}, name(setting.name)), ": ",
        name(setting.before), " → ", name(setting.after), " · ", testLink(setting.test))))])] : []),
    ...table.parts];
}
