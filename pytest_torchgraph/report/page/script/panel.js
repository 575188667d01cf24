// Panel below a picture or an outline: the data of a node, and its paths to the loss.

const ENDS = { loss: ["to", "the loss"], output: ["to", "an output"], tangent: ["from", "the gradient of the loss"] };
const WAY = 200; // nodes of a path listed at once

// Returns a function that returns a node's paths to an end of its graph, or null if unknown. Keys include the graph:
// a picture may have several graphs, with nodes of the same name.
function pathFinder(pictureData) {
  const key = (node, other = node.name) => `${node.old}\n${node.graph}\n${other}`;
  const nodes = new Map(pictureData.nodes.map((node) => [key(node), node]));
  const after = (node) => [...node.users, ...node.later].map((other) => nodes.get(key(node, other))).filter(Boolean);
  let before = null;
  const operands = (node) => {
    if (!before) {
      before = new Map();
      for (const operand of pictureData.nodes) for (const user of after(operand)) {
        if (!before.has(user)) before.set(user, []);
        before.get(user).push(operand);
      }
    }
    return before.get(node) || [];
  };
  const kinds = new Map();
  for (const node of pictureData.nodes) if (node.end) kinds.set(key(node, ""), node.end);
  return (node) => {
    const kind = kinds.get(key(node, "")); // none for the removed nodes of an old graph: the data lack its other nodes
    if (!kind) return null;
    const next = kind === "tangent" ? operands : after;
    const route = ways(node, next, (end) => end.end === kind);
    const effect = route || kind === "tangent" ? null : ways(node, next, (end) => end.effects);
    return { kind, route, effect: effect ? effect.shortest.at(-1) : null };
  };
}

// Fades the boxes and edges that are on no path; `way` is the set of nodes on a path, null for no fading.
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

// Returns the panel. `at` is the place of its nodes in an address: `{ picture: 1 }` or `{ outline: 2 }`.
function nodePanel(pictureData, at, { go, mark }) {
  const root = element("div", { class: "card", hidden: "" });
  const wayFrom = pathFinder(pictureData);
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
      mark(way.route && way.route.on);
      list.replaceChildren(...pathParts(node, way, direction, where));
    } }, `path ${direction} ${where}`);
  };
  const pathParts = (node, way, direction, where) => {
    if (!way.route) {
      const kept = node.saved ? "; its result is saved for backward" : "";
      const effect = way.effect ? [", but it leads to an effect, ", name(way.effect.name), `: ${way.effect.effects}`] : "";
      return [element("p", { class: "nowhere" }, direction === "from"
        ? `No path leads here from ${where}.` : `No output of this graph needs it${kept}`, effect)];
    }
    const { shortest, on } = way.route;
    return [
      element("p", {}, `${plural(shortest.length, "node")} on a shortest path, ${thousands(on.size)} on any.`),
      element("ol", { class: "way" }, (direction === "from" ? [...shortest].reverse() : shortest).slice(0, WAY)
        .map((step) => element("li", {}, element("button", { onclick: () => go(step) }, name(step.name)), " ",
          name(step.op), " ", element("span", { class: "note" }, name(step.result))))),
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
