// Everything that comes from the run is put into the page as text. Pictures are parsed as SVG, elements
// and attributes that could run code or load files are removed, and each is in a shadow root of its
// own, so that ids and classes in it cannot clash with those of the page.
const data = JSON.parse(document.getElementById("data").textContent);
const tests = data.tests;
const causes = data.causes;
const audit = data.audit;
const OUTCOMES = ["failed", "error", "crashed", "xpassed", "passed", "xfailed", "skipped"];
const ROWS = 200; // rows of the table of nodes; the search reaches the others
const TESTS = 10; // tests that are listed of a cause; a click shows the others
const COPIED_MS = 1500; // how long a button says that its text was copied
const DRAG_PX = 4; // a pointer that moved no further has clicked
const WHEEL_ZOOM = 1.2; // factor of one step of the wheel
const BUTTON_ZOOM = 1.4; // factor of one click on a zoom button
const MIN_WIDTH = 20; // width of the smallest part of a picture that can be shown, in its own units
const MAX_ZOOM_OUT = 4; // widths of the picture that fit into the largest part
const MARGIN = 1.6; // size of the part that is shown for a finding, in sizes of its boxes
const MIN_PART = [400, 300]; // and its least width and height, so that neighbours are seen
const NO_SIZE = [0, 0, 800, 600]; // view box of a picture that does not state one

function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") node.className = value || "";
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child !== null) node.append(child);
  return node;
}

// Text that a user chose, isolated for writing direction; control characters are shown as escapes.
function name(text) {
  const shown = String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  return element("bdi", {}, shown);
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function times(count) {
  return count === 1 ? "once" : `${count} times`;
}

// -- the list -------------------------------------------------------------------------------------

const shown = new Set(OUTCOMES);
let words = [];
let current = -1;
let views = [];

// The captures of a test, and one for each class of equal ranks.
function capturesOf(test) {
  return [...test.captures, ...test.ranks.flatMap((each) => each.classes.map((one) => one.capture))];
}

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

function select(number) {
  current = number;
  for (const button of overviews) button.removeAttribute("aria-current");
  for (const button of document.querySelectorAll("nav button")) {
    const chosen = Number(button.dataset.test) === number;
    if (chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    if (chosen) button.scrollIntoView({ block: "nearest" });
  }
  history.replaceState(null, "", `#${number}`);
  views = [];
  document.querySelector("main").replaceChildren(...detail(tests[number]));
  document.querySelector("main").scrollTop = 0;
  for (const view of views) if (view.start) view.start();
}

// -- views of the whole run --------------------------------------------------------------------------

const auditButton = element("button", { id: "all-compiled", onclick: () => showAudit() },
  element("strong", {}, "what this suite compiles"));
const causesButton = element("button", { id: "all-causes", onclick: () => showCauses() },
  element("strong", {}, causes ? causes.heading : ""));
const overviews = [...(audit ? [auditButton] : []), ...(causes ? [causesButton] : [])];

function overview(button, hash, ...parts) {
  current = -1;
  views = [];
  for (const other of document.querySelectorAll("nav button")) other.removeAttribute("aria-current");
  button.setAttribute("aria-current", "true");
  history.replaceState(null, "", hash);
  document.querySelector("main").replaceChildren(...parts);
  document.querySelector("main").scrollTop = 0;
}

function showAudit() {
  overview(auditButton, "#audit", ...auditView(audit));
}

// Each edit once, with the tests that it fails.
function showCauses() {
  overview(causesButton, "#causes",
    element("h2", {}, causes.heading),
    ...causes.releases.map((pair) => element("p", { class: "where" }, `torch ${pair}`)),
    ...causes.list.map(cause),
    ...(causes.accept ? [element("p", {}, "Is all of it intended? Then store it:"), command(causes.accept)] : []));
}

function cause(each) {
  const change = [["del", each.before], ["add", each.after]].filter(([, line]) => line);
  const buttons = each.files.map((id) => testButton(id));
  return element("section", { class: "card cause" },
    element("h3", {}, element("span", { class: "sign" }, each.sign), name(each.what)),
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

const byId = new Map(tests.map((test) => [test.id, test]));

function numbered(id) {
  return byId.get(id);
}

function testButton(id) {
  const test = numbered(id);
  return element("li", {}, test ? element("button", { onclick: () => select(test.number) }, name(id)) : name(id));
}

// -- one test -------------------------------------------------------------------------------------

function detail(test) {
  return [
    element("h2", {}, ...title(test)),
    element("p", { class: "where" }, name(test.where), ` · ${test.seconds.toFixed(2)} s`),
    ...test.differences.flatMap((each, number) => difference(each, test.differences[number - 1])),
    ...test.pictures.flatMap((each) => [element("h3", {}, name(each.title)), ...picture(each)]),
    ...(test.message ? [element("h3", {}, "Message"), element("pre", {}, test.message)] : []),
    ...test.ranks.flatMap(ranks),
    ...test.captures.flatMap((each) => capture(each)),
  ];
}

function command(text) {
  const button = element("button", { onclick: async () => {
    await copy(text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, COPIED_MS);
  } }, "copy");
  return element("div", { class: "command" }, element("pre", {}, text), button);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { readonly: "" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// The findings, each a button that shows its boxes in the picture; the first is shown at once.
function findings(each, view) {
  const buttons = each.findings.map((finding) => element("button", {
    title: view && finding.ids.length ? "show it in the picture" : null,
    onclick: (event) => {
      for (const other of buttons) other.removeAttribute("aria-current");
      event.currentTarget.setAttribute("aria-current", "true");
      if (view) view.show(finding.ids, finding.follows);
    },
  }, element("span", { class: "sign" }, finding.sign), name(finding.summary),
  finding.more ? element("span", { class: "more" }, name(finding.more)) : null));
  if (view && buttons.length) view.start = () => buttons[0].click();
  return element("ul", { class: "findings" }, buttons.map((button) => element("li", {}, button)));
}

// A comparison that failed; of several ranks each class has its own, and what is of all is said once.
function difference(each, before) {
  const again = each.ranks && before && before.file === each.file;
  const view = each.svg ? viewer(each) : null;
  const changes = findings(each, view);
  const accept = again ? [] : [element("p", {}, "Is it intended? Then store it:"), command(each.accept)];
  const lines = each.diff.map((line) => element("span", {
    class: /^(\+\+\+|---|@@)/.test(line) ? "at" : { "+": "add", "-": "del" }[line[0]] || "",
  }, line + "\n"));
  return [
    ...(again ? [] : [element("h3", {}, "Difference from ", name(each.file)), element("p", {}, name(each.headline))]),
    ...(each.ranks ? [...accept, element("h3", {}, name(each.ranks)), changes] : [changes, ...accept]),
    element("div", { class: "beside" },
      element("div", {}, view ? view.root : element("p", { class: "note" }, each.note)),
      element("div", {}, lines.length ? element("pre", {}, lines) : null)),
    view && each.note ? element("p", { class: "note" }, each.note) : null,
    cost(each.cost, "Cost before and after"),
    nodes(each, view),
  ].filter((part) => part !== null);
}

function picture(each) {
  if (!each.svg) return [element("p", { class: "note" }, each.note || "no picture")];
  const view = viewer(each);
  return [findings(each, view), view.root, each.note ? element("p", { class: "note" }, each.note) : null,
    nodes(each, view)].filter((part) => part !== null);
}

// A capture, or the one that stands for ranks, which `who` names.
function capture(each, who = null, open = false) {
  const parts = [element("h3", {}, who || ["Capture ", Number.isInteger(each.rank) ? `of rank ${each.rank} ` : "",
    name(each.via ? `via ${each.via}` : "of a watch")])];
  if (each.note) parts.push(element("p", { class: "note" }, name(each.note)));
  for (const graphBreak of each.breaks) {
    parts.push(element("div", { class: "card" },
      element("strong", {}, "graph break "), name(graphBreak.kind), ": ", name(graphBreak.reason),
      element("dl", {}, element("dt", {}, "line"), element("dd", {}, name(`${graphBreak.file}:${graphBreak.line}`)),
        element("dt", {}, "code"), element("dd", {}, element("code", {}, name(graphBreak.code))),
        element("dt", {}, "hint"), element("dd", {}, name(graphBreak.hint || "none")),
        element("dt", {}, "times"), element("dd", {}, String(graphBreak.occurrences)))));
  }
  for (const recompile of each.recompiles) {
    parts.push(element("div", { class: "card" },
      element("strong", {}, "recompile "), name(recompile.function), ` (`, name(`${recompile.file}:${recompile.line}`), ")",
      element("ul", {}, recompile.reasons.map((reason) => element("li", {}, name(reason)))),
      element("ul", { class: "details" }, recompile.details.map((line) => element("li", {}, name(line.trim()))))));
  }
  if (each.collectives) parts.push(collectives(each.collectives, open));
  if (each.cost) parts.push(cost(each.cost, "Cost"));
  let cause = null;
  for (const graph of each.graphs) {
    // What ran eagerly stands behind its graph break, in a frame of its own.
    const next = graph.cause ? `${graph.cause.place} ${graph.cause.kind}` : null;
    if (next && next !== cause) {
      parts.push(element("p", { class: "cut" }, "✂ ", name(graph.cause.kind), " · ", name(graph.cause.place), " · ",
        element("code", {}, name(graph.cause.code))));
    }
    cause = next;
    const about = graph.runs ? `eager ${graph.kind === "forward" ? "" : `${graph.kind} `}· ran ${times(graph.runs)} · `
      : `${graph.kind} at ${graph.level} · `;
    const rows = graph.ops.map(([op, count]) => element("tr", {},
      element("td", { class: "number" }, String(count)), element("td", {}, name(op))));
    parts.push(element("details", { class: graph.runs ? "eager" : null },
      element("summary", {}, name(graph.name), ` · ${about}`, plural(graph.count, "node")),
      element("table", {}, rows)));
  }
  return parts;
}

// What modules cost, each with all below it; of a comparison those that cost another amount than before.
function cost(each, title) {
  if (!each) return null;
  const cell = (value) => element("td", { class: "number" }, thousands(value));
  return element("details", { class: "cost" },
    element("summary", {}, `${title}: ${each.about}`),
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, ["module", ...each.titles].map((text, number) =>
        element("th", { scope: "col", class: number ? "number" : null }, text)))),
      element("tbody", {}, each.rows.map(([module, nesting, ...figures]) => element("tr", {},
        element("th", { scope: "row", style: `padding-inline-start: ${nesting + 0.5}rem` },
          module ? name(module) : "all"), figures.map(cell)))))),
    each.more ? element("p", { class: "note" }, `${plural(each.more, "module")} more`) : null,
    each.note ? element("p", { class: "note" }, name(each.note)) : null);
}

// All nodes of the graphs, also those that the picture folds into boxes.
function nodes(each, view) {
  if (!each.nodes.length) return null;
  const body = element("tbody");
  const note = element("p", { class: "note" });
  const fill = (text) => {
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = each.nodes.filter((node) => {
      const line = `${node.name} ${node.op} ${node.module} ${node.result} ${node.line}`.toLowerCase();
      return wanted.every((word) => line.includes(word));
    });
    body.replaceChildren(...matches.slice(0, ROWS).map((node) => element("tr", {},
      element("td", {}, node.sign), element("td", {}, element("button", {
        onclick: () => view && view.select(node),
      }, name(node.name))), element("td", {}, name(node.op)), element("td", {}, name(node.result)),
      element("td", {}, name(node.line)))));
    note.textContent = matches.length > ROWS ? `the first ${ROWS} of ${matches.length}` : plural(matches.length, "node");
  };
  const box = element("details", { ontoggle: () => { if (!body.childElementCount) fill(""); } },
    element("summary", {}, `All ${plural(each.nodes.length, "node")}`),
    element("input", { type: "search", placeholder: "op, module, shape, line",
      "aria-label": "search the nodes", oninput: (event) => fill(event.target.value) }),
    note,
    element("table", {}, element("thead", {}, element("tr", {},
      ["", "node", "op", "result", "line"].map((title) => element("th", {}, title)))), body));
  return box;
}

// -- pictures -------------------------------------------------------------------------------------

function parsed(text) {
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (svg.nodeName !== "svg") return null;
  for (const bad of svg.querySelectorAll("script, foreignObject, iframe, image, use, animate, set")) {
    bad.remove();
  }
  for (const each of [svg, ...svg.querySelectorAll("*")]) {
    for (const { name: key } of [...each.attributes]) {
      if (/^on/i.test(key) || /href$/i.test(key)) each.removeAttribute(key);
    }
  }
  return document.importNode(svg, true);
}

function viewer(each) {
  const root = element("div", { class: "picture" });
  const view = element("div", { class: "view" });
  const panel = element("div", { class: "card", hidden: "" });
  const shadow = view.attachShadow({ mode: "open" });
  const svg = parsed(each.svg);
  if (!svg) {
    root.append(element("p", { class: "note" }, "the picture cannot be read"));
    return { root, show() {}, select() {} };
  }
  const style = document.createElement("style");
  style.textContent = "svg{width:100%;height:100%;display:block}g.node,g.cluster{cursor:pointer}"
    + ".chosen path,.chosen polygon,.chosen ellipse,.chosen rect{stroke-width:4px}"
    + ".faint{opacity:.25}";
  shadow.append(style, svg);
  const full = svg.viewBox.baseVal.width
    ? [svg.viewBox.baseVal.x, svg.viewBox.baseVal.y, svg.viewBox.baseVal.width, svg.viewBox.baseVal.height]
    : [...NO_SIZE];
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  let box = [...full];
  const set = (next) => { box = next; svg.setAttribute("viewBox", box.join(" ")); };
  const zoom = (factor, x = box[0] + box[2] / 2, y = box[1] + box[3] / 2) => {
    const width = Math.min(Math.max(box[2] * factor, MIN_WIDTH), full[2] * MAX_ZOOM_OUT);
    const scale = width / box[2];
    set([x - (x - box[0]) * scale, y - (y - box[1]) * scale, width, box[3] * scale]);
  };
  const at = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [point.x, point.y];
  };
  const fit = (parts) => {
    const matrix = svg.getScreenCTM().inverse();
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const part of parts) {
      const frame = part.getBoundingClientRect();
      for (const [x, y] of [[frame.left, frame.top], [frame.right, frame.bottom]]) {
        const point = new DOMPoint(x, y).matrixTransform(matrix);
        [left, top] = [Math.min(left, point.x), Math.min(top, point.y)];
        [right, bottom] = [Math.max(right, point.x), Math.max(bottom, point.y)];
      }
    }
    const width = Math.max((right - left) * MARGIN, MIN_PART[0]);
    const height = Math.max((bottom - top) * MARGIN, MIN_PART[1]);
    set([(left + right - width) / 2, (top + bottom - height) / 2, width, height]);
  };
  const drawn = (id) => shadow.getElementById(id);
  const choose = (parts) => {
    for (const other of shadow.querySelectorAll(".chosen")) other.classList.remove("chosen");
    for (const part of parts) part.classList.add("chosen");
  };
  const show = (ids, follows = []) => {
    const parts = ids.map(drawn).filter(Boolean);
    choose([...parts, ...follows.map(drawn).filter(Boolean)]);
    if (parts.length) fit(parts);
  };
  const byId = new Map();
  for (const node of each.nodes) for (const id of node.ids) if (!byId.has(id)) byId.set(id, node);
  const describe = (node) => {
    const users = node.users.length ? node.users.join(", ") : "none";
    panel.hidden = false;
    panel.replaceChildren(element("strong", {}, name(node.name)), element("dl", {},
      [["op", node.op], ["result", node.result || "unknown"], ["module", node.module || "none"],
        ["line", node.line || "unknown"], ["code", node.code], ["operands", node.operands], ["users", users]]
        .filter(([, value]) => value)
        .flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, name(value))])));
  };
  let down = null;
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? WHEEL_ZOOM : 1 / WHEEL_ZOOM, ...at(event));
  }, { passive: false });
  view.addEventListener("pointerdown", (event) => {
    down = { x: event.clientX, y: event.clientY, box: [...box], moved: false };
    view.setPointerCapture(event.pointerId);
  });
  view.addEventListener("pointermove", (event) => {
    if (!down) return;
    const scale = 1 / svg.getScreenCTM().a;
    const [dx, dy] = [event.clientX - down.x, event.clientY - down.y];
    if (Math.abs(dx) + Math.abs(dy) > DRAG_PX) down.moved = true;
    if (!down.moved) return;
    view.classList.add("moving");
    set([down.box[0] - dx * scale, down.box[1] - dy * scale, down.box[2], down.box[3]]);
  });
  view.addEventListener("pointerup", (event) => {
    const moved = down && down.moved;
    down = null;
    view.classList.remove("moving");
    if (moved) return;
    let part = shadow.elementFromPoint(event.clientX, event.clientY);
    while (part && !byId.has(part.id)) part = part.parentElement;
    if (part) {
      choose([part]);
      describe(byId.get(part.id));
    }
  });
  root.append(element("div", { class: "tools" },
    element("button", { onclick: () => zoom(1 / BUTTON_ZOOM), "aria-label": "zoom in" }, "+"),
    element("button", { onclick: () => zoom(BUTTON_ZOOM), "aria-label": "zoom out" }, "−"),
    element("button", { onclick: () => set([...full]) }, "whole picture")), view, panel);
  const controls = { root, show, select: (node) => { show(node.ids); describe(node); } };
  views.push(controls);
  return controls;
}

// -- start ----------------------------------------------------------------------------------------

tests.forEach((test, number) => { test.number = number; });
const chips = OUTCOMES.filter((outcome) => tests.some((test) => test.outcome === outcome)).map((outcome) => {
  const count = tests.filter((test) => test.outcome === outcome).length;
  const chip = element("button", { "aria-pressed": "true", onclick: () => {
    if (!shown.delete(outcome)) shown.add(outcome);
    chip.setAttribute("aria-pressed", String(shown.has(outcome)));
    list();
  } }, element("span", { class: outcome }, `${count} ${outcome}`));
  return chip;
});
const search = element("input", { type: "search", "aria-label": "search the tests",
  placeholder: "test, op, module, break, finding", oninput: () => {
    words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    list();
  } });
document.querySelector("header").append(element("h1", {}, "torchgraph"), search, ...chips,
  element("span", { id: "count", role: "status" }), element("span", { class: "about" }, data.about));
if (data.warning) {
  document.querySelector("header").append(element("strong", { class: "failed" }, data.warning));
}
document.addEventListener("keydown", (event) => {
  if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
  const numbers = matching().map((test) => test.number);
  const place = numbers.indexOf(current);
  if (event.key === "/") { event.preventDefault(); search.focus(); }
  else if (event.key === "j" && numbers.length) select(numbers[Math.min(place + 1, numbers.length - 1)]);
  else if (event.key === "k" && numbers.length) select(numbers[Math.max(place - 1, 0)]);
});
// Where tests have nothing to show, what the suite compiles has the page for itself.
if (audit && !tests.length && overviews.length === 1) document.body.className = "alone";
list();
const wanted = Number.parseInt(location.hash.slice(1), 10);
const first = matching().findIndex((test) => ["failed", "error", "crashed"].includes(test.outcome));
if (tests[wanted]) select(wanted);
else if (causes && (!audit || location.hash === "#causes")) showCauses();
else if (audit) showAudit();
else if (tests.length) select(matching()[Math.max(first, 0)].number);
