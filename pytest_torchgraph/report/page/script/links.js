// Addresses of what is shown: `#test=ID&finding=2`, `#causes`, `#test=ID&picture=1&node=NAME`, and with each what the
// list leaves out: `&search=gelu&hide=passed,skipped`. They are in the address bar, and are followed when the page is
// opened, and when the browser goes back.

let place = {}; // what is shown, as the parts of its address
let quiet = false; // what is shown now has its address already

// Half a surrogate pair cannot be in an address.
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

// What is shown from now on, for the address bar; `replace` where the browser is not to come back to what was.
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

// Shows something that has its address already; `show` makes addresses, if any, before it waits for anything.
function quietly(show) {
  quiet = true;
  try {
    return show();
  } finally {
    quiet = false;
  }
}

// Shows what an address names. False where it names nothing; what is not in this page, the page says.
async function follow(hash) {
  const { search: sought, hide, ...parts } = partsOf(hash);
  filter(sought || "", (hide || "").split(","));
  const { view, cause, test } = parts;
  if (test !== undefined) return followTest(parts);
  if (view === "causes" && causesHeading) {
    quietly(showCauses);
    if (cause !== undefined) marked([...document.querySelectorAll(".cause")].find((each) => each.dataset.cause === cause), "This cause");
  } else if (view === "audit" && audit) quietly(showAudit);
  else if (view === "print") await showPrint();
  else return view ? nothingAt("This page has no ", name(view), ".") : false;
  return true;
}

async function followTest(parts) {
  const { test, finding, capture, picture, outline, node, graph, old } = parts;
  const found = numbered(test) || tests.find((each) => wellFormed(each.id) === test);
  if (!found) return nothingAt("The test ", name(test), " is not in this page: it may be from another run, or use no graphs.");
  await (found.number === current ? loading : quietly(() => select(found.number)));
  if (found.number !== current) return true; // somebody has chosen something else meanwhile
  if (node === undefined) quietly(() => { for (const each of views) if (each.clear) each.clear(); });
  place = parts;
  if (finding !== undefined) {
    const one = shownParts.findings[finding - 1];
    if (one) one.choose();
    else missing(`Finding ${finding} is not in this test: `, plural(shownParts.findings.length, "finding"), ".");
  }
  if (capture !== undefined) marked(shownParts.captures[capture - 1], `Capture ${capture}`);
  if (node !== undefined) {
    const one = outline === undefined ? shownParts.pictures[(picture || 1) - 1] : await openedOutline(outline);
    const told = one && one.nodes.find((each) => each.name === node
      && (graph === undefined || each.graph === graph) && each.old === (old === "1"));
    if (told) quietly(() => one.view.select(told));
    else missing("The node ", name(node), " is not in this test.");
  }
  return true;
}

async function openedOutline(number) {
  const holder = shownParts.outlines[number - 1];
  const view = holder && (await holder.open());
  return view && { view, nodes: view.nodes };
}

// What was shown stays; where nothing was, it is what the page opens with.
async function nothingAt(...words) {
  if (!document.querySelector("main h2")) await quietly(opening);
  return missing(...words);
}

function marked(part, words) {
  if (!part) return missing(words, " is not in this page.");
  part.scrollIntoView({ block: "start" });
  part.tabIndex = -1;
  part.focus({ preventScroll: true });
  return true;
}

// Says above what is shown that a link leads to nothing here.
function missing(...words) {
  const main = document.querySelector("main");
  for (const other of main.querySelectorAll(".missing")) other.remove();
  main.prepend(element("p", { class: "card missing", role: "alert" }, ...words));
  main.scrollTop = 0;
  return true;
}

addEventListener("popstate", async () => {
  if (!(await follow(location.hash))) await opening();
  if (!document.querySelector("main").contains(document.activeElement)) focusHeading();
});
