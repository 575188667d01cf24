// Outline of a graph: modules that fold, with ops as rows. A difference has the old and the new graph side by side, with
// matched nodes in one row, so that both sides scroll together.

const OUTLINE_PX = 24; // height of a row
const FIRST_ROWS = 60; // approximate number of rows that an outline opens with
const AROUND = 3; // unchanged ops shown before and after a change; the rest is folded
const ALIKE = 4; // minimum number of unchanged ops that are folded into one row
const INDENT = 14; // pixels per level

let outlines = 0; // outlines built so far, for unique ids of their rows

// Figure that the bars of all outlines show, "" for none.
const outlineLooks = { heat: "flops" };

// Returns the rows of the open modules. In a difference, runs of unchanged ops fold into one row, unless `opened` has the
// first op of the run.
function rowsOf(root, isOpen, opened) {
  const rows = [];
  const isUnchanged = (leaf) => !leaf.items && !leaf.sign;
  const compared = root.compared;
  const addRows = (items, depth) => {
    for (let index = 0; index < items.length; index += 1) {
      const item = items[index];
      if (item.items) {
        rows.push({ module: item, depth });
        if (isOpen(item)) addRows(item.items, depth + 1);
        continue;
      }
      let runEnd = index;
      while (compared && runEnd < items.length && isUnchanged(items[runEnd])) runEnd += 1;
      const from = index + (index ? AROUND : 0);
      const to = runEnd - (runEnd < items.length ? AROUND : 0);
      if (to - from >= ALIKE && !opened.has(items[from])) {
        for (const leaf of items.slice(index, from)) rows.push({ leaf, depth });
        rows.push({ alike: items.slice(from, to), depth });
        for (const leaf of items.slice(to, runEnd)) rows.push({ leaf, depth });
        index = runEnd - 1;
      } else if (runEnd > index) {
        for (const leaf of items.slice(index, runEnd)) rows.push({ leaf, depth });
        index = runEnd - 1;
      } else rows.push({ leaf: item, depth });
    }
  };
  addRows(root.items, 0);
  return rows;
}

// Returns the modules to open first. In a difference: modules with changes, up to four times `FIRST_ROWS`. Otherwise: outer
// modules before inner ones, up to `FIRST_ROWS`; the inputs (`path` is null) start folded.
function firstOpen(root) {
  const open = new Set();
  let count = root.items.length;
  for (let level = root.items.filter((item) => item.items); level.length; level = level.flatMap((module) =>
    (open.has(module) ? module.items.filter((item) => item.items) : []))) {
    for (const module of level) {
      if (root.compared ? !module.changes : module.path === null || module.items.length + count > FIRST_ROWS) continue;
      if (root.compared && count > FIRST_ROWS * 4) continue;
      open.add(module);
      count += root.compared ? Math.min(module.items.length, module.changes * (2 * AROUND + 1)) : module.items.length;
    }
  }
  return open;
}

// Returns an outline with a menu for its graphs: `{ before, after, pairs }` for a pair of a difference,
// `{ before: null, after }` for a capture. `at` is the outline's part of an address; `chosen` is called with a chosen node.
function outline(graphs, { compared = false, at, chosen = () => {} }) {
  const id = `outline-${outlines += 1}`;
  const trees = graphs.map((pair) => {
    const before = pair.before ? nodesOf(pair.before, true) : null;
    const after = pair.after ? nodesOf(pair.after) : null;
    const root = treeOf(leavesOf(before, after, compared ? pair.pairs || [] : null));
    root.compared = compared;
    return { name: (pair.after || pair.before).name, before: before || [], after: after || [], root };
  });
  const allNodes = trees.flatMap((graph) => [...graph.before, ...graph.after]);
  const leafOf = new Map();
  const collect = (module, graph) => {
    for (const item of module.items) {
      if (item.items) collect(item, graph);
      else for (const node of [item.before, item.after]) if (node) leafOf.set(node, { leaf: item, graph });
    }
  };
  for (const graph of trees) collect(graph.root, graph);
  const state = { graph: trees[0], open: new Set(trees.flatMap((graph) => [...firstOpen(graph.root)])), opened: new Set(),
    words: [], saved: false, active: 0, selected: null, way: null, rows: [] };

  const body = element("div", { role: "treegrid", tabindex: "0", "aria-label": compared ? "before and after" : "the graph" });
  const scroller = element("div", { class: "scroll" }, body);
  const note = element("span", { class: "note", role: "status" });
  const root = element("div", { class: compared ? "outline compared" : "outline" });
  const panel = nodePanel({ nodes: allNodes }, at, {
    go: (node) => select(node),
    mark: (way) => { state.way = way; rows.refresh(); },
  });

  const total = (figure) => Math.max(1, ...["before", "after"].map((side) => state.graph.root[side][figure]));
  const bar = (figures) => {
    const figure = outlineLooks.heat;
    if (!figure) return null;
    const value = figures[figure];
    if (value === null) return element("span", { class: "bar", title: "unknown" }, "?");
    if (!value) return element("span", { class: "bar" });
    const part = value / total(figure);
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

  const makeRow = (index) => {
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
  const rows = virtualRows({ scroller, body, height: OUTLINE_PX, make: makeRow });

  // Returns the rows that match the search and the filter, as a flat list without modules.
  const matchingRows = () => {
    const wanted = (leaf) => [leaf.before, leaf.after].some((node) => node && (!state.saved || node.saved)
      && state.words.every((word) => `${node.name} ${node.op} ${node.module} ${node.result} ${node.line}`.toLowerCase().includes(word)));
    const leaves = [...new Set([...state.graph.before, ...state.graph.after].map((node) => leafOf.get(node).leaf))].filter(wanted);
    if (state.saved) leaves.sort((a, b) => (sideOf(b).saved || 0) - (sideOf(a).saved || 0));
    return leaves.map((leaf) => ({ leaf, depth: 0, flat: true }));
  };
  const update = () => {
    const flat = state.words.length > 0 || state.saved;
    state.rows = flat ? matchingRows() : rowsOf(state.graph.root, (module) => state.open.has(module), state.opened);
    state.active = Math.min(state.active, Math.max(0, state.rows.length - 1));
    const { leaves, changes } = state.graph.root;
    note.textContent = flat ? `${thousands(state.rows.length)} of ${thousands(leaves)} nodes`
      : `${thousands(leaves)} nodes${compared ? `, ${thousands(changes)} differ` : ""}`;
    body.setAttribute("aria-rowcount", state.rows.length);
    rows.resize(state.rows.length);
  };
  const activate = (index) => {
    if (index < 0 || index >= state.rows.length) return;
    const previous = rows.row(state.active);
    if (previous) previous.classList.remove("active");
    state.active = index;
    rows.show(index);
    const row = rows.row(index);
    if (row) row.classList.add("active");
    body.setAttribute("aria-activedescendant", `${id}-${index}`);
  };
  // Folds or unfolds a module, unfolds a run of unchanged ops, or describes a node.
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
    } else choose(leaf);
  };
  const choose = (leaf) => {
    state.selected = leaf;
    state.way = null;
    rows.refresh();
    panel.describe(sideOf(leaf));
    chosen(sideOf(leaf));
  };
  // Makes the row of a node active. Opens the modules and runs that hide it, and resets the search and the filter.
  const reveal = (node) => {
    const position = leafOf.get(node);
    if (!position) return null;
    const { leaf, graph } = position;
    if (state.graph !== graph) selectGraph(graph);
    state.words = [];
    state.saved = false;
    search.value = "";
    keptOnly.checked = false;
    for (let module = leaf.parent; module; module = module.parent) state.open.add(module);
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
    if (leaf) choose(leaf);
  };
  const selectGraph = (graph) => {
    state.graph = graph;
    state.active = 0;
    picker.value = String(trees.indexOf(graph));
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
      const parent = row.module ? row.module.parent : (row.leaf || row.alike[0]).parent;
      activate(state.rows.findIndex((candidate) => candidate.module && candidate.module === parent));
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
  const figures = ["flops", "saved"].filter((figure) => allNodes.some((node) => node[figure]));
  const heat = figures.length ? element("select", { onchange: () => { outlineLooks.heat = heat.value; rows.refresh(); } },
    [["", "off"], ...figures.map((figure) => [figure, HEAT.units[figure][1]])].map(([value, text]) => element("option", { value }, text))) : null;
  if (heat) {
    if (outlineLooks.heat && !figures.includes(outlineLooks.heat)) outlineLooks.heat = figures[0];
    heat.value = outlineLooks.heat;
  }
  const keptOnly = element("input", { type: "checkbox", onchange: () => { state.saved = keptOnly.checked; state.active = 0; update(); } });
  const picker = element("select", { "aria-label": "graph", onchange: () => selectGraph(trees[Number(picker.value)]) },
    trees.map((graph, number) => element("option", { value: number }, graph.name)));
  const unknown = allNodes.filter((node) => node.flops === null).length;
  root.append(...[element("div", { class: "tools" }, trees.length > 1 ? picker : null, search,
    heat ? element("label", {}, "cost: ", heat) : null,
    figures.includes("saved") ? element("label", {}, keptOnly, " saved for backward") : null,
    element("button", { onclick: () => { state.open.clear(); state.opened.clear(); update(); } }, "fold all"), note),
  compared ? element("div", { class: "heads" }, element("span", { class: "sign" }), element("span", {}, "before"), element("span", {}, "after")) : null,
  scroller,
  unknown ? element("p", { class: "note" }, unknown === allNodes.filter((node) => node.op !== "output").length ? "cost of all ops unknown"
    : `cost of ${plural(unknown, "op")} unknown`) : null, panel.root].filter(Boolean));
  update();
  const view = { root, nodes: allNodes, select, reveal, show: () => {}, update, clear: () => (panel.open() ? (panel.close(), true) : false) };
  views.push(view);
  return view;
}

// Returns a <details> whose outline is built when it is first opened. `read` returns the graphs or a promise of them.
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
