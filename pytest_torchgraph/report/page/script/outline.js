// A graph as an outline: modules that fold, ops as rows, of a difference the old and the new graph side by side,
// row by row what corresponds, so that both move together.

const OUTLINE_PX = 24; // height of a row
const FIRST_ROWS = 60; // rows that an outline opens with, about
const AROUND = 3; // ops beside a change that are shown; further ones are folded
const ALIKE = 4; // ops that are alike are folded from this number on
const INDENT = 14; // pixels of a level

let outlines = 0; // how many there were, for the ids of their rows

// What the colours of outlines mean, while the page is open.
const outlineLooks = { heat: "flops" };

// Which rows there are: of what is open in the tree.
function rowsOf(root, isOpen, opened) {
  const rows = [];
  const alike = (leaf) => !leaf.items && !leaf.sign;
  const compared = root.compared;
  const level = (items, depth) => {
    for (let at = 0; at < items.length; at += 1) {
      const item = items[at];
      if (item.items) {
        rows.push({ module: item, depth });
        if (isOpen(item)) level(item.items, depth + 1);
        continue;
      }
      let end = at;
      while (compared && end < items.length && alike(items[end])) end += 1;
      const from = at + (at ? AROUND : 0);
      const to = end - (end < items.length ? AROUND : 0);
      if (to - from >= ALIKE && !opened.has(items[from])) {
        for (const leaf of items.slice(at, from)) rows.push({ leaf, depth });
        rows.push({ alike: items.slice(from, to), depth });
        for (const leaf of items.slice(to, end)) rows.push({ leaf, depth });
        at = end - 1;
      } else if (end > at) {
        for (const leaf of items.slice(at, end)) rows.push({ leaf, depth });
        at = end - 1;
      } else rows.push({ leaf: item, depth });
    }
  };
  level(root.items, 0);
  return rows;
}

// The modules that are open at first: of a difference those with changes, else from outside in while there is room.
function firstOpen(root) {
  const open = new Set();
  let count = root.items.length;
  for (let level = root.items.filter((item) => item.items); level.length; level = level.flatMap((each) =>
    (open.has(each) ? each.items.filter((item) => item.items) : []))) {
    for (const each of level) {
      if (root.compared ? !each.changes : each.path === null || each.items.length + count > FIRST_ROWS) continue;
      if (root.compared && count > FIRST_ROWS * 4) continue;
      open.add(each);
      count += root.compared ? Math.min(each.items.length, each.changes * (2 * AROUND + 1)) : each.items.length;
    }
  }
  return open;
}

// `graphs` are those of a difference, `{ before, after, pairs }`, or of a capture, `{ before: null, after }`.
function outline(graphs, { compared = false, at, chosen = () => {} }) {
  const id = `outline-${outlines += 1}`;
  const both = graphs.map((each) => {
    const before = each.before ? nodesOf(each.before, true) : null;
    const after = each.after ? nodesOf(each.after) : null;
    const root = treeOf(leavesOf(before, after, compared ? each.pairs || [] : null));
    root.compared = compared;
    return { name: (each.after || each.before).name, before: before || [], after: after || [], root };
  });
  const every = both.flatMap((each) => [...each.before, ...each.after]);
  const leafOf = new Map();
  const collect = (module, graph) => {
    for (const item of module.items) {
      if (item.items) collect(item, graph);
      else for (const node of [item.before, item.after]) if (node) leafOf.set(node, { leaf: item, graph });
    }
  };
  for (const graph of both) collect(graph.root, graph);
  const state = { graph: both[0], open: new Set(both.flatMap((each) => [...firstOpen(each.root)])), opened: new Set(),
    words: [], saved: false, active: 0, selected: null, way: null, rows: [] };

  const body = element("div", { role: "treegrid", tabindex: "0", "aria-label": compared ? "before and after" : "the graph" });
  const scroller = element("div", { class: "scroll" }, body);
  const note = element("span", { class: "note", role: "status" });
  const root = element("div", { class: compared ? "outline compared" : "outline" });
  const panel = nodePanel({ nodes: every }, at, {
    go: (node) => select(node),
    mark: (way) => { state.way = way; rows.refresh(); },
  });

  const most = (figure) => Math.max(1, ...["before", "after"].map((side) => state.graph.root[side][figure]));
  const bar = (figures) => {
    const figure = outlineLooks.heat;
    if (!figure) return null;
    const value = figures[figure];
    if (value === null) return element("span", { class: "bar", title: "unknown" }, "?");
    if (!value) return element("span", { class: "bar" });
    const part = value / most(figure);
    return element("span", { class: "bar", title: `${thousands(value)} ${HEAT.units[figure][0]}` },
      element("span", { class: "amount", style: `width: ${Math.max(2, 100 * part).toFixed(1)}%` }),
      element("span", { class: "share" }, part >= 0.001 ? `${(100 * part).toFixed(1)} %` : "< 0.1 %"));
  };
  const nodeCells = (node, depth, flat) => (node ? [
    element("span", { role: "gridcell", class: "what", style: `padding-left: ${flat ? 6 : 20 + depth * INDENT}px`, title: `${node.name}\n${node.code || node.line}` },
      node.saved ? element("span", { class: "kept", title: `${thousands(node.saved)} B saved for backward` }, "● ") : "",
      name(flat && node.module ? node.name : node.name.slice(node.name.lastIndexOf("/") + 1)), " ", element("small", {}, name(node.op))),
    element("span", { role: "gridcell", class: "result" }, name(node.result)),
    bar(node)] : [element("span", { role: "gridcell", class: "what none" })]);
  const moduleCells = (module, side, depth, open) => (module[side].nodes ? [
    element("span", { role: "gridcell", class: "what", style: `padding-left: ${6 + depth * INDENT}px`, title: module.path || module.label },
      element("span", { class: "twisty" }, open ? "▾ " : "▸ "), name(module.label)),
    element("span", { role: "gridcell", class: "result" }, plural(module[side].nodes, module.path === null ? "input" : "node")),
    bar(module[side])] : [element("span", { role: "gridcell", class: "what none" })]);
  const SIDES = compared ? ["before", "after"] : ["after"];

  const make = (index) => {
    const { leaf, module, alike, depth, flat } = state.rows[index];
    const row = element("div", { role: "row", id: `${id}-${index}`, "aria-level": (depth || 0) + 1, "aria-rowindex": index + 1,
      "aria-expanded": module ? String(state.open.has(module)) : null, onclick: () => { activate(index); act(index); } });
    row.className = index === state.active ? "active" : "";
    if (leaf) {
      if (leaf.sign) row.classList.add({ "+": "added", "-": "removed" }[leaf.sign] || "changed");
      if (state.selected === leaf) row.classList.add("selected");
      if (state.way && !state.way.has(leaf.after) && !state.way.has(leaf.before)) row.classList.add("faint");
    } else if (module && module.changes) row.classList.add("touched");
    if (compared) row.append(element("span", { role: "gridcell", class: "sign" },
      leaf ? leaf.sign : module && module.changes ? String(module.changes) : ""));
    if (alike) row.append(element("span", { role: "gridcell", class: "alike", style: `padding-left: ${20 + depth * INDENT}px` }, `⋯ ${plural(alike.length, "node")} alike`));
    else for (const side of SIDES) {
      row.append(element("div", { class: "side", role: "presentation" },
        leaf ? nodeCells(leaf[side], depth, flat) : moduleCells(module, side, depth, state.open.has(module))));
    }
    return row;
  };
  const rows = virtualRows({ scroller, body, height: OUTLINE_PX, make });

  // Which leaves the search and the filter leave: those are a list, without modules.
  const found = () => {
    const wanted = (leaf) => [leaf.before, leaf.after].some((node) => node && (!state.saved || node.saved)
      && state.words.every((word) => `${node.name} ${node.op} ${node.module} ${node.result} ${node.line}`.toLowerCase().includes(word)));
    const leaves = [...new Set([...state.graph.before, ...state.graph.after].map((node) => leafOf.get(node).leaf))].filter(wanted);
    if (state.saved) leaves.sort((a, b) => (sideOf(b).saved || 0) - (sideOf(a).saved || 0));
    return leaves.map((leaf) => ({ leaf, depth: 0, flat: true }));
  };
  const update = () => {
    const flat = state.words.length > 0 || state.saved;
    state.rows = flat ? found() : rowsOf(state.graph.root, (module) => state.open.has(module), state.opened);
    state.active = Math.min(state.active, Math.max(0, state.rows.length - 1));
    const { leaves, changes } = state.graph.root;
    note.textContent = flat ? `${thousands(state.rows.length)} of ${thousands(leaves)} nodes`
      : `${thousands(leaves)} nodes${compared ? `, ${thousands(changes)} differ` : ""}`;
    body.setAttribute("aria-rowcount", state.rows.length);
    rows.resize(state.rows.length);
  };
  const activate = (index) => {
    if (index < 0 || index >= state.rows.length) return;
    const before = rows.row(state.active);
    if (before) before.classList.remove("active");
    state.active = index;
    rows.show(index);
    const row = rows.row(index);
    if (row) row.classList.add("active");
    body.setAttribute("aria-activedescendant", `${id}-${index}`);
  };
  // Folds a module, opens what is alike, tells of a node.
  const act = (index, open = null) => {
    const { leaf, module, alike } = state.rows[index];
    if (module) {
      const next = open === null ? !state.open.has(module) : open;
      if (next) state.open.add(module);
      else state.open.delete(module);
      update();
    } else if (alike) {
      state.opened.add(alike[0]);
      update();
    } else tell(leaf);
  };
  const tell = (leaf) => {
    state.selected = leaf;
    state.way = null;
    rows.refresh();
    panel.describe(sideOf(leaf));
    chosen(sideOf(leaf));
  };
  // Shows the row of a node wherever it is folded, and makes it the active one.
  const reveal = (node) => {
    const known = leafOf.get(node);
    if (!known) return null;
    const { leaf, graph } = known;
    if (state.graph !== graph) choose(graph);
    state.words = [];
    state.saved = false;
    search.value = "";
    keptOnly.checked = false;
    for (let each = leaf.around; each; each = each.around) state.open.add(each);
    update();
    if (!state.rows.some((row) => row.leaf === leaf)) {
      const hidden = state.rows.find((row) => row.alike && row.alike.includes(leaf));
      if (hidden) state.opened.add(hidden.alike[0]);
      update();
    }
    activate(state.rows.findIndex((row) => row.leaf === leaf));
    return leaf;
  };
  const select = (node) => {
    const leaf = reveal(node);
    if (leaf) tell(leaf);
  };
  const choose = (graph) => {
    state.graph = graph;
    state.active = 0;
    picker.value = String(both.indexOf(graph));
    update();
    scroller.scrollTop = 0;
  };
  const page = () => Math.max(1, Math.floor(scroller.clientHeight / OUTLINE_PX) - 1);
  body.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !state.rows.length) return;
    const row = state.rows[state.active];
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page(), PageUp: -page(), Home: -state.rows.length, End: state.rows.length };
    if (event.key in moves) activate(Math.min(Math.max(state.active + moves[event.key], 0), state.rows.length - 1));
    else if (event.key === "ArrowRight" && row.module) act(state.active, true);
    else if (event.key === "ArrowLeft" && row.module && state.open.has(row.module)) act(state.active, false);
    else if (event.key === "ArrowLeft") {
      const around = row.module ? row.module.around : (row.leaf || row.alike[0]).around;
      activate(state.rows.findIndex((each) => each.module && each.module === around));
    } else if (event.key === "Enter" || event.key === " ") act(state.active);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const search = element("input", { type: "search", placeholder: "op, module, shape, line", "aria-label": "search the graph",
    oninput: () => {
      state.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      state.active = 0;
      update();
      if (!state.words.length && state.selected) activate(state.rows.findIndex((row) => row.leaf === state.selected));
    } });
  const known = ["flops", "saved"].filter((figure) => every.some((node) => node[figure]));
  const heat = known.length ? element("select", { onchange: () => { outlineLooks.heat = heat.value; rows.refresh(); } },
    [["", "off"], ...known.map((figure) => [figure, HEAT.units[figure][1]])].map(([value, text]) => element("option", { value }, text))) : null;
  if (heat) {
    if (outlineLooks.heat && !known.includes(outlineLooks.heat)) outlineLooks.heat = known[0];
    heat.value = outlineLooks.heat;
  }
  const keptOnly = element("input", { type: "checkbox", onchange: () => { state.saved = keptOnly.checked; state.active = 0; update(); } });
  const picker = element("select", { "aria-label": "graph", onchange: () => choose(both[Number(picker.value)]) },
    both.map((each, number) => element("option", { value: number }, each.name)));
  const unknown = every.filter((node) => node.flops === null).length;
  root.append(...[element("div", { class: "tools" }, both.length > 1 ? picker : null, search,
    heat ? element("label", {}, "cost: ", heat) : null,
    known.includes("saved") ? element("label", {}, keptOnly, " saved for backward") : null,
    element("button", { onclick: () => { state.open.clear(); state.opened.clear(); update(); } }, "fold all"), note),
  compared ? element("div", { class: "heads" }, element("span", { class: "sign" }), element("span", {}, "before"), element("span", {}, "after")) : null,
  scroller,
  unknown ? element("p", { class: "note" }, unknown === every.filter((node) => node.op !== "output").length ? "cost of all ops unknown"
    : `cost of ${plural(unknown, "op")} unknown`) : null, panel.root].filter(Boolean));
  update();
  const view = { root, nodes: every, select, reveal, show: () => {}, update, clear: () => (panel.open() ? (panel.close(), true) : false) };
  views.push(view);
  return view;
}

// A place for an outline that is built when it is opened. `read` gives its graphs, as they are read.
function foldedOutline(summary, read, options) {
  const number = shownParts.outlines.length + 1;
  let built = null;
  const box = element("details", { class: "graph", ontoggle: async () => {
    if (!box.open) return;
    const view = await build();
    if (options.opened) options.opened(view);
  } }, element("summary", {}, summary));
  const build = () => {
    built = built || (async () => {
      const view = outline(await read(), { ...options, at: { outline: number } });
      box.append(view.root);
      view.update();
      return view;
    })();
    return built;
  };
  shownParts.outlines.push({ open: async () => { box.open = true; return build(); } });
  return box;
}
