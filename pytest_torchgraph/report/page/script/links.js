// Address of the current view, kept in the address bar: `#test=ID&finding=2`, `#causes`, `#test=ID&picture=1&node=NAME`,
// each followed by the filters of the test list: `&search=gelu&hide=passed,skipped`. The page follows its address on load
// and when the user goes back or forward.

let place = {}; // parts of the current view's address
let quiet = false; // true while `quietly` runs: `linkTo` leaves the browser's history alone

// Replaces lone surrogates: `encodeURIComponent` throws for them.
function wellFormed(text) {
  return String(text).replace(/\p{Surrogate}/gu, "\ufffd");
}

function address(parts) {
  const encoded = (value) => encodeURIComponent(wellFormed(value)).replace(/%(?:2F|3A|2C|40)/g, decodeURIComponent);
  return `#${Object.entries(parts).filter(([, value]) => value !== null && value !== undefined)
    .map(([key, value]) => (key === "view" ? encoded(value) : `${key}=${encoded(value)}`)).join("&")}`;
}

function partsOf(hash) {
  const decoded = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };
  const parts = {};
  for (const item of hash.slice(1).split("&").filter(Boolean)) {
    const [, key, value] = /^([a-z]+)=(.*)$/s.exec(item) || [null, "view", item];
    parts[key] = decoded(value);
  }
  return parts;
}

// Sets the address of the current view. With `replace`, the previous view gets no entry in the browser's history.
function linkTo(parts, replace = false) {
  place = parts;
  const to = address({ ...parts, ...filters() });
  if (quiet || to === location.hash) return;
  history[replace || !location.hash ? "replaceState" : "pushState"](null, "", to);
}

function linkButton(parts = null) {
  const button = copyButton("link", () => location.href.split("#")[0] + address({ ...parts || place, ...filters() }), "link");
  button.title = "copy the link";
  return button;
}

// Calls `show` without a change of the history, for a view whose address is already in the address bar. `show` must call
// `linkTo` before its first `await`, because the flag is reset as soon as `show` returns.
function quietly(show) {
  quiet = true;
  try {
    return show();
  } finally {
    quiet = false;
  }
}

// Shows the view with an address. Returns false if the address names no view, and true otherwise: if the page lacks the
// view, an alert says so.
async function follow(hash) {
  const { search: query, hide, ...parts } = partsOf(hash);
  filter(query || "", (hide || "").split(","));
  const { view, cause, test } = parts;
  if (test !== undefined) return followTest(parts);
  if (view === "causes" && causesHeading) {
    quietly(showCauses);
    if (cause !== undefined) scrollToPart([...document.querySelectorAll(".cause")].find((card) => card.dataset.cause === cause), "This cause");
  } else if (view === "audit" && audit) quietly(showAudit);
  else if (view === "print") await showPrint();
  else return view ? linkMissing("This page has no ", name(view), ".") : false;
  return true;
}

async function followTest(parts) {
  const { test, finding, capture, picture, outline, node, graph, old } = parts;
  const target = numbered(test) || tests.find((candidate) => wellFormed(candidate.id) === test);
  if (!target) return linkMissing("The test ", name(test), " is not in this page: it may be from another run, or use no graphs.");
  await (target.number === current ? loading : quietly(() => select(target.number)));
  if (target.number !== current) return true; // the user selected another test meanwhile
  if (node === undefined) quietly(() => { for (const view of views) if (view.clear) view.clear(); });
  place = parts;
  if (finding !== undefined) {
    const entry = shownParts.findings[finding - 1];
    if (entry) entry.choose();
    else showMissing(`Finding ${finding} is not in this test: `, plural(shownParts.findings.length, "finding"), ".");
  }
  if (capture !== undefined) scrollToPart(shownParts.captures[capture - 1], `Capture ${capture}`);
  if (node !== undefined) {
    const source = outline === undefined ? shownParts.pictures[(picture || 1) - 1] : await openedOutline(outline);
    const match = source && source.nodes.find((candidate) => candidate.name === node
      && (graph === undefined || candidate.graph === graph) && candidate.old === (old === "1"));
    if (match) quietly(() => source.view.select(match));
    else showMissing("The node ", name(node), " is not in this test.");
  }
  return true;
}

async function openedOutline(number) {
  const holder = shownParts.outlines[number - 1];
  const view = holder && (await holder.open());
  return view && { view, nodes: view.nodes };
}

// Shows an alert above the current view, or above the opening view if the page has just been loaded.
async function linkMissing(...words) {
  if (!document.querySelector("main h2")) await quietly(showOpening);
  return showMissing(...words);
}

function scrollToPart(part, words) {
  if (!part) return showMissing(words, " is not in this page.");
  part.scrollIntoView({ block: "start" });
  part.tabIndex = -1;
  part.focus({ preventScroll: true });
  return true;
}

// Shows an alert above the current view: the page lacks the target of a link.
function showMissing(...words) {
  const main = document.querySelector("main");
  for (const stale of main.querySelectorAll(".missing")) stale.remove();
  main.prepend(element("p", { class: "card missing", role: "alert" }, ...words));
  main.scrollTop = 0;
  return true;
}

addEventListener("popstate", async () => {
  if (!(await follow(location.hash))) await showOpening();
  if (!document.querySelector("main").contains(document.activeElement)) focusHeading();
});
