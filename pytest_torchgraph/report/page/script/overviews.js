// Views of the whole run: what the suite compiles, and the causes of what failed.

const TESTS = 10; // tests that are listed of a cause; a click shows the others

const auditButton = element("button", { id: "all-compiled", onclick: () => showAudit() },
  element("strong", {}, "what this suite compiles"));
const causesButton = element("button", { id: "all-causes", onclick: () => showCauses() },
  element("strong", {}, causes ? causes.heading : ""));
const overviews = [...(audit ? [auditButton] : []), ...(causes ? [causesButton] : [])];

function overview(button, view, ...parts) {
  current = -1;
  views = [];
  shownParts = noParts();
  for (const other of document.querySelectorAll("nav button")) other.removeAttribute("aria-current");
  if (button) button.setAttribute("aria-current", "true");
  linkTo({ view });
  document.querySelector("main").replaceChildren(...parts);
  document.querySelector("main").scrollTop = 0;
}

function showAudit() {
  overview(auditButton, "audit", ...auditView(audit));
}

// Each edit once, with the tests that it fails.
function showCauses() {
  overview(causesButton, "causes",
    element("h2", {}, causes.heading),
    ...causes.releases.map((pair) => element("p", { class: "where" }, `torch ${pair}`)),
    ...causes.list.map(cause),
    ...(causes.accept ? [element("p", {}, "Is all of it intended? Then store it:"), command(causes.accept)] : []));
}

function cause(each) {
  const change = [["del", each.before], ["add", each.after]].filter(([, line]) => line);
  const buttons = each.files.map((id) => testButton(id));
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
    element("ul", { class: "tests" }, buttons.slice(0, TESTS)),
    buttons.length > TESTS ? element("details", {},
      element("summary", {}, `${buttons.length - TESTS} more`),
      element("ul", { class: "tests" }, buttons.slice(TESTS))) : null);
}
