// Views of the whole run: what the suite compiles, and the causes of what failed.

const TESTS = 10; // tests that are listed of a cause; a click shows the others

const auditButton = element("button", { id: "all-compiled", onclick: () => showAudit() },
  element("strong", {}, "torch.compile in this suite"));
const causesHeading = [causes ? causes.heading : "",
  failures.length ? `${failures.length}${causes ? " other" : ""} ${failures.length === 1 ? "failure" : "failures"} in ${plural(failedElsewhere(), "test")}` : ""]
  .filter(Boolean).join(", ");
const causesButton = element("button", { id: "all-causes", onclick: () => showCauses() }, element("strong", {}, causesHeading));
const overviews = [...(causesHeading ? [causesButton] : []), ...(audit ? [auditButton] : [])];

function failedElsewhere() {
  return new Set(failures.flatMap((each) => each.tests)).size;
}

function overview(button, view, ...parts) {
  mark(-1);
  views = [];
  shownParts = noParts();
  if (button) button.setAttribute("aria-current", "true");
  linkTo({ view });
  const main = document.querySelector("main");
  main.removeAttribute("aria-busy"); // with what was read for another view
  main.replaceChildren(...parts);
  main.scrollTop = 0;
}

function showAudit() {
  overview(auditButton, "audit", ...auditView(audit));
}

function showCauses() {
  overview(causesButton, "causes", element("h2", {}, causesHeading), ...causesView());
}

// Each edit once, with the tests that it fails; then all else that failed, equal messages once.
function causesView() {
  return [
    ...(causes ? [...causes.releases.map((pair) => element("p", { class: "where" }, `torch ${pair}`)),
      ...causes.list.map(cause),
      ...(causes.accept ? [element("p", {}, "If all changes are intended, accept them:"), command(causes.accept)] : [])] : []),
    ...(failures.length && causes ? [element("h2", {}, "Other failures")] : []),
    ...failures.map(failure),
  ];
}

function failure(each) {
  return element("section", { class: "card cause failure" },
    element("h3", {}, name(each.headline)),
    element("p", {}, plural(each.tests.length, "test")), ...testsIn(each.tests));
}

// The first tests; a click shows the others.
function testsIn(ids) {
  const more = ids.slice(TESTS);
  return [element("ul", { class: "tests" }, ids.slice(0, TESTS).map(testButton)),
    ...(more.length ? [folded(`${more.length} more`, () => [element("ul", { class: "tests" }, more.map(testButton))])] : [])];
}

function cause(each) {
  const change = [["del", each.before], ["add", each.after]].filter(([, line]) => line);
  const key = `${each.sign} ${each.what}${each.where ? ` in ${each.where}` : ""}`; // what its address calls it
  return element("section", { class: "card cause", "data-cause": wellFormed(key) },
    element("div", { class: "linked" }, element("h3", {}, element("span", { class: "sign" }, each.sign), name(each.what)),
      linkButton({ view: "causes", cause: key })),
    element("p", {}, each.where ? ["in ", name(each.where), " · "] : "",
      `${plural(each.places, "place")} in ${plural(each.files.length, "test")}`,
      each.costs ? ` · costs ${each.costs}` : ""),
    ...each.sources.map((line) => element("p", { class: "where" }, name(line))),
    change.length ? element("pre", {}, change.map(([kind, line]) =>
      element("span", { class: kind }, name(`${kind === "add" ? "+" : "-"} ${line}`)))) : null,
    ...testsIn(each.files));
}
