// The list of tests: what is searched, what is shown, and which is chosen.

const shown = new Set(OUTCOMES);
let words = [];
let current = -1;
let views = [];
let shownParts = noParts(); // of the test that is shown, what an address can name

function searched(test) {
  if (test.searched === undefined) {
    const parts = [test.id, test.message];
    for (const capture of capturesOf(test)) {
      for (const graph of capture.graphs) {
        parts.push(graph.name, graph.runs ? "eager" : "", ...graph.ops.map(([op]) => op));
      }
      for (const each of capture.collectives ? capture.collectives.rows : []) {
        parts.push(each.kind, each.group, each.module, each.line);
      }
      for (const each of capture.breaks) parts.push(each.kind, each.reason, each.file, each.code);
      for (const each of capture.recompiles) parts.push(each.function, ...each.reasons, ...each.details);
    }
    for (const difference of test.differences) {
      parts.push(difference.headline, ...difference.findings.map((finding) => finding.summary));
    }
    test.searched = parts.join("\n").toLowerCase();
  }
  return test.searched;
}

function matching() {
  return tests.filter((test) =>
    shown.has(test.outcome) && words.every((word) => searched(test).includes(word)));
}

function title(test) {
  return [element("span", { class: `outcome ${test.outcome}` }, test.outcome), " ", name(test.id)];
}

function badges(test) {
  const findings = test.differences.reduce((sum, each) => sum + each.findings.length, 0);
  const breaks = capturesOf(test).reduce((sum, each) => sum + each.breaks.length, 0);
  const recompiles = capturesOf(test).reduce((sum, each) => sum + each.recompiles.length, 0);
  const counts = [];
  if (findings) counts.push(plural(findings, "finding"));
  if (breaks) counts.push(plural(breaks, "break"));
  if (test.ranks.some(disagree)) counts.push("ranks disagree");
  if (recompiles) counts.push(plural(recompiles, "recompile"));
  return counts.map((text) => element("span", { class: "badge" }, text));
}

function list() {
  const matches = matching();
  const rows = matches.map((test) => element("li", {}, element("button", {
    "data-test": test.number,
    "aria-current": test.number === current ? "true" : null,
    onclick: () => select(test.number),
  }, ...title(test), badges(test))));
  const nav = document.querySelector("nav");
  nav.replaceChildren(...(overviews.length ? [element("div", { class: "views" }, overviews)] : []), rows.length ? element("ol", {}, rows)
    : element("p", { class: "none" }, tests.length ? "No test matches." : "No test used graphs."));
  document.getElementById("count").textContent = `${matches.length} of ${plural(tests.length, "test")}`;
}

function select(number, replace = false) {
  current = number;
  for (const button of overviews) button.removeAttribute("aria-current");
  for (const button of document.querySelectorAll("nav button")) {
    const chosen = Number(button.dataset.test) === number;
    if (chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    if (chosen) button.scrollIntoView({ block: "nearest" });
  }
  linkTo({ test: tests[number].id }, replace);
  views = [];
  shownParts = noParts();
  document.querySelector("main").replaceChildren(...detail(tests[number]));
  document.querySelector("main").scrollTop = 0;
  for (const view of views) if (view.start) view.start();
}

function testButton(id) {
  const test = numbered(id);
  return element("li", {}, test ? element("button", { onclick: () => select(test.number) }, name(id)) : name(id));
}
