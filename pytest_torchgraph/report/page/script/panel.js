// What is told of a node below its picture, and the ways from it to the loss.

const ENDS = { loss: ["to", "the loss"], output: ["to", "an output"], tangent: ["from", "the gradient of the loss"] };
const WAY = 200; // nodes of a way that are listed

// Finds the ways of the nodes of a picture; the nodes of one graph are told from those of another.
function waysIn(each) {
  const key = (node, other = node.name) => `${node.old}\n${node.graph}\n${other}`;
  const nodes = new Map(each.nodes.map((node) => [key(node), node]));
  const after = (node) => [...node.users, ...node.later].map((other) => nodes.get(key(node, other))).filter(Boolean);
  let before = null;
  const operands = (node) => {
    if (!before) {
      before = new Map();
      for (const one of each.nodes) for (const other of after(one)) {
        if (!before.has(other)) before.set(other, []);
        before.get(other).push(one);
      }
    }
    return before.get(node) || [];
  };
  const kinds = new Map();
  for (const node of each.nodes) if (node.end) kinds.set(key(node, ""), node.end);
  return (node) => {
    const kind = kinds.get(key(node, "")); // none for what is left of a graph that is gone
    if (!kind) return null;
    const next = kind === "tangent" ? operands : after;
    const found = ways(node, next, (one) => one.end === kind);
    const effect = found || kind === "tangent" ? null : ways(node, next, (one) => one.effects);
    return { kind, found, effect: effect ? effect.shortest.at(-1) : null };
  };
}

// Boxes and edges that are on no way are faint.
function fade({ shadow }, way, byBox) {
  for (const part of shadow.querySelectorAll(".faint")) part.classList.remove("faint");
  if (!way) return;
  const names = new Set();
  for (const part of shadow.querySelectorAll("g.node")) {
    const on = (byBox.get(part.id) || []).some((node) => way.has(node));
    if (on) names.add(part.querySelector("title").textContent);
    else part.classList.add("faint");
  }
  for (const part of shadow.querySelectorAll("g.edge")) {
    const title = part.querySelector("title");
    if (!title || !title.textContent.split("->").every((end) => names.has(end))) part.classList.add("faint");
  }
}

// `at` is what an address says of where the node is: `{ picture: 1 }`, `{ outline: 2 }`.
function nodePanel(each, at, { go, mark }) {
  const root = element("div", { class: "card", hidden: "" });
  const wayFrom = waysIn(each);
  let open = null;
  const amounts = (node) => Object.entries(HEAT.units).map(([figure, [unit, words]]) => [words,
    node[figure] === null ? "unknown" : node[figure] ? `${thousands(node[figure])} ${unit}` : ""]);
  const describe = (node, together = 1) => {
    open = node;
    linkTo({ ...place, picture: null, outline: null, ...at, node: node.name, graph: node.graph, old: node.old ? "1" : null });
    const users = node.users.length ? node.users.join(", ") : "none";
    const list = element("div");
    root.hidden = false;
    root.replaceChildren(element("strong", {}, name(node.name)),
      together > 1 ? element("span", { class: "note" }, ` and ${plural(together - 1, "node")} more in this box`) : "",
      element("dl", {},
        [["op", node.op], ["result", node.result || "unknown"], ["module", node.module || "none"],
          ["line", node.line || "unknown"], ["code", node.code], ["operands", node.operands], ["users", users],
          ["effects", node.effects], ...amounts(node)]
          .filter(([, value]) => value)
          .flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, name(value))])),
      element("div", { class: "tools" }, wayButton(node, list), linkButton(), element("button", {
        onclick: () => close(), "aria-label": "close" }, "close")), list);
  };
  const wayButton = (node, list) => {
    const way = wayFrom(node);
    if (!way) return element("span", { class: "note" }, "paths unknown: its whole graph is not in this picture");
    const [direction, where] = ENDS[way.kind];
    return element("button", { onclick: () => {
      mark(way.found && way.found.on);
      list.replaceChildren(...told(node, way, direction, where));
    } }, `path ${direction} ${where}`);
  };
  const told = (node, way, direction, where) => {
    if (!way.found) {
      const kept = node.saved ? "; its result is saved for backward" : "";
      const effect = way.effect ? [", but it leads to an effect, ", name(way.effect.name), `: ${way.effect.effects}`] : "";
      return [element("p", { class: "nowhere" }, direction === "from"
        ? `No path leads here from ${where}.` : `No output of this graph needs it${kept}`, effect)];
    }
    const { shortest, on } = way.found;
    return [
      element("p", {}, `${plural(shortest.length, "node")} on a shortest path, ${thousands(on.size)} on any.`),
      element("ol", { class: "way" }, (direction === "from" ? [...shortest].reverse() : shortest).slice(0, WAY)
        .map((one) => element("li", {}, element("button", { onclick: () => go(one) }, name(one.name)), " ",
          name(one.op), " ", element("span", { class: "note" }, name(one.result))))),
      shortest.length > WAY ? element("p", { class: "note" }, `${plural(shortest.length - WAY, "node")} more`) : "",
    ];
  };
  const close = () => {
    open = null;
    root.hidden = true;
    root.replaceChildren();
    mark(null);
    const { test, view } = place;
    linkTo(view ? { view } : { test }, true);
  };
  return { root, describe, open: () => open, close };
}
