// The view of an audit: what this suite compiles, by cause, and a table of its tests.

const KINDS = {
  break: "graph break", recompile: "recompile", limit: "recompile limit", bypass: "cache bypass", eager: "ran eagerly",
  nothing: "nothing compiled",
};
const CAUSES = 20; // causes, or changes, that are shown at once; a click shows the others
const NAMED = 3; // causes that are named of a test
const COLUMNS = [["graphs", "graphs"], ["ops", "ops"], ["breaks", "breaks"], ["again", "recompiles"], ["seconds", "compile s"]];

function firstOf(items, make) {
  const others = items.slice(CAUSES);
  return [...items.slice(0, CAUSES).map(make), ...(others.length ? [folded(`${others.length} more`, () => others.map(make))] : [])];
}

function placed(each) {
  return each.file ? element("p", { class: "where" }, name(`${each.file}:${each.line} in ${each.function}`)) : null;
}

// The first test, so that many causes are on one screen; a click shows the others.
function testsOf(ids) {
  if (ids.length === 1) return element("ul", { class: "tests" }, testButton(ids[0]));
  return folded([name(ids[0]), ` and ${ids.length - 1} more`], () => [element("ul", { class: "tests" }, ids.map(testButton))]);
}

function auditCause(each) {
  const reason = each.code || each.text;
  const facts = [plural(each.tests.length, "test")];
  if (each.times > each.tests.length) facts.push(times(each.times));
  if (each.without_graph && each.kind !== "nothing") facts.push(`nothing compiled in ${each.without_graph}`);
  return element("section", { class: `card cause ${each.kind}` },
    element("h3", {}, KINDS[each.kind] || name(each.kind), " ", element("span", { class: "badge" }, facts.join(", "))),
    reason ? element("p", {}, element(each.code ? "code" : "span", {}, name(reason))) : null,
    placed(each), each.places.length > 1 ? folded(`${plural(each.places.length - 1, "more place")}`, () =>
      each.places.filter((place) => place.line !== each.line || place.file !== each.file).map(placed)) : null,
    testsOf(each.tests));
}

function auditChange(each, kind) {
  return element("section", { class: `card cause ${kind}` },
    element("h3", {}, name(each.text), " ", element("span", { class: "badge" }, plural(each.tests.length, "test"))),
    each.text.includes(`${each.file}:${each.line}`) ? null : placed(each), testsOf(each.tests));
}

// What is worse and better than the baseline; where nothing was judged, why.
function auditBaseline(baseline) {
  if (!baseline) return [];
  const verdict = baseline.verdict;
  if (!verdict) return baseline.said.map((line) => element("p", {}, name(line)));
  const listed = (title, ids) => ids.length
    ? [folded(`${plural(ids.length, "test")} ${title}`, () => [element("ul", { class: "tests" }, ids.map(testButton))])] : [];
  const parts = verdict.worse.length
    ? [element("h3", { class: "failed" }, "Worse than ", name(baseline.file)),
      ...firstOf(verdict.worse, (each) => auditChange(each, "worse"))]
    : [element("p", {}, name(baseline.said[0] || ""))];
  if (verdict.better.length) {
    parts.push(folded(`${plural(verdict.better.length, "change")} for the better: record to keep them`,
      () => firstOf(verdict.better, (each) => auditChange(each, "better"))));
  }
  if (verdict.renamed.length) {
    parts.push(folded(`${plural(verdict.renamed.length, "test")} probably renamed`, () => [element("ul", {},
      verdict.renamed.map(([old, now]) => element("li", {}, name(old), " → ", name(now))))]));
  }
  return [...parts, ...listed("not in the baseline yet", verdict.new), ...listed("of the baseline not run", verdict.gone)];
}

// One line a test with its causes; what is typed is searched in both, and a title sorts by its column.
function auditTable(audit) {
  const words = new Map(audit.causes.flatMap((each) => each.keys.map((key) => [key, each])));
  const rows = Object.entries(audit.tests).map(([id, facts]) => {
    const causes = facts.causes.map((key) => words.get(key)).filter(Boolean);
    const count = (...kinds) => causes.filter((each) => kinds.includes(each.kind)).length;
    return { id, causes, graphs: facts.graphs, ops: facts.ops, breaks: count("break"), again: count("recompile", "limit"),
      seconds: facts.seconds, compiles: facts.compiles,
      searched: [id, facts.compiles ? "" : "compiles nothing", ...causes.flatMap((each) => [KINDS[each.kind], each.words])]
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
      element("tr", {}, element("td", { class: "where", colspan: COLUMNS.length + 1 }, told(row))))));
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

// The causes of a test, each on a line.
function told(row) {
  const lines = row.causes.slice(0, NAMED).map((each) => name(each.words));
  if (row.causes.length > NAMED) lines.push(`and ${row.causes.length - NAMED} more`);
  if (!row.compiles && !row.causes.some((each) => each.kind === "nothing")) lines.push("compiles nothing");
  return lines.map((line) => element("div", {}, line));
}

function testLink(id) {
  const test = numbered(id);
  return test ? element("button", { onclick: () => select(test.number) }, name(id)) : name(id);
}

// The sums; a click on one that is told of tests shows these in the table.
function figures(totals, filter) {
  const listed = [[`${thousands(totals.using)} of ${thousands(totals.tests)}`, totals.tests === 1 ? "test uses torch.compile" : "tests use torch.compile", ""],
    [totals.nothing, totals.nothing === 1 ? "compiles nothing" : "compile nothing", totals.nothing && "compile nothing"],
    [totals.graphs, "graphs"], [totals.ops, "ops"], [totals.backwards, "backward graphs"],
    [totals.graph_breaks, "graph breaks", totals.graph_breaks && "graph break"],
    [totals.recompiles, "recompiles", totals.recompiles && "recompile"], [`${thousands(Number(totals.compile_seconds.toFixed(1)))} s`, "compiling"]];
  return element("ul", { class: "figures" }, listed.map(([value, what, wanted]) => element("li", {},
    element(wanted ? "button" : "div", wanted ? { onclick: () => filter(wanted) } : {},
      element("strong", {}, typeof value === "number" ? thousands(value) : value), element("span", {}, what)))));
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
      slow.slice(0, ROWS).map((each) => element("li", {}, name(`${each.file}:${each.line} in ${each.function}`),
        ` · ${each.seconds.toFixed(2)} s in ${plural(each.tests, "test")}`)))])] : []),
    ...(audit.settings_left.length ? [folded(`${plural(audit.settings_left.length, "torch setting")} changed and not restored`, () =>
      [element("ul", {}, audit.settings_left.map((each) => element("li", {}, element("code", {}, name(each.name)), ": ",
        name(each.before), " → ", name(each.after), " · ", testLink(each.test))))])] : []),
    ...table.parts];
}
