// Views of the whole run: the audit, and the causes of failed tests.

const TESTS = 10; // tests listed at once for a cause; a click shows the rest

const auditButton = element("button", { id: "all-compiled", onclick: () => showAudit() },
  element("strong", {}, "torch.compile in this suite"));
const causesHeading = [causes ? causes.heading : "",
  failures.length ? `${failures.length}${causes ? " other" : ""} ${failures.length === 1 ? "failure" : "failures"} in ${plural(failedTestCount(), "test")}` : ""]
  .filter(Boolean).join(", ");
const causesButton = element("button", { id: "all-causes", onclick: () => showCauses() }, element("strong", {}, causesHeading));
const overviews = [...(causesHeading ? [causesButton] : []), ...(audit ? [auditButton] : [])];

function failedTestCount() {
  return new Set(failures.flatMap((group) => group.tests)).size;
}

function overview(button, view, ...parts) {
  mark(-1);
  views = [];
  shownParts = noParts();
  if (button) button.setAttribute("aria-current", "true");
  linkTo({ view });
  const main = document.querySelector("main");
  main.removeAttribute("aria-busy"); // set by `load` for a test that is no longer wanted
  main.replaceChildren(...parts);
  main.scrollTop = 0;
}

function showAudit() {
  overview(auditButton, "audit", ...auditView(audit));
}

function showCauses() {
  overview(causesButton, "causes", element("h2", {}, causesHeading), ...causesView());
}

// Returns each edit with the tests that it fails, then all other failures, grouped by message.
function causesView() {
  return [
    ...(causes ? [...causes.releases.map((pair) => element("p", { class: "where" }, `torch ${pair}`)),
      ...causes.list.map(cause),
      ...(causes.accept ? [element("p", {}, "If all changes are intended, accept them:"), command(causes.accept)] : [])] : []),
    ...(failures.length && causes ? [element("h2", {}, "Other failures")] : []),
    ...failures.map(failure),
  ];
}

function failure(group) {
  return element("section", { class: "card cause failure" },
    element("h3", {}, name(group.headline)),
    element("p", {}, plural(group.tests.length, "test")), ...testsIn(group.tests));
}

// Returns a list of tests, folded after the first `TESTS`.
function testsIn(ids) {
  const more = ids.slice(TESTS);
  return [element("ul", { class: "tests" }, ids.slice(0, TESTS).map(testButton)),
    ...(more.length ? [folded(`${more.length} more`, () => [element("ul", { class: "tests" }, more.map(testButton))])] : [])];
}

function cause(edit) {
  const lines = (edit.forms || [edit]).flatMap((form) => [["del", form.before, "- "], ["add", form.after, "+ "],
    ...[...(form.with || []), ...(edit.forms ? [`in ${form.file}`] : [])].map((line) => ["where", line, "  "])])
    .filter(([, line]) => line);
  const key = `${edit.sign} ${edit.what}${edit.where ? ` in ${edit.where}` : ""}`; // its name in an address
  return element("section", { class: "card cause", "data-cause": wellFormed(key) },
    element("div", { class: "linked" }, element("h3", {}, element("span", { class: "sign" }, edit.sign), name(edit.what)),
      linkButton({ view: "causes", cause: key })),
    element("p", {}, edit.where ? ["in ", name(edit.where), " · "] : "",
      `${plural(edit.places, "place")} in ${plural(edit.files.length, "test")}`,
      ...(edit.ranks && edit.ranks.length ? [" · ", name(`${plural(edit.ranks.length, "rank")}: ${edit.ranks.join(", ")}`)] : []),
      edit.costs ? ` · costs ${edit.costs}` : ""),
    ...edit.sources.map((line) => element("p", { class: "where" }, name(line))),
    lines.length ? element("pre", {}, lines.map(([kind, line, sign]) =>
      element("span", { class: kind }, name(`${sign}${line}`)))) : null,
    ...testsIn(edit.files));
}
