// Graphs as report/page/graphs.py writes them, in columns: read into nodes, and put in order by modules.

// The nodes of a graph, as those of a picture are, with their `number` and `graphData`.
function nodesOf(graph, old = false) {
  const text = (column, at) => graph.texts[graph[column][at]];
  const ends = new Set(graph.ends);
  const nodes = graph.names.map((own, at) => ({
    name: own, graph: graph.name, old, number: at, end: ends.has(at) ? graph.end : "",
    op: text("op", at), module: text("module", at), result: text("result", at), line: text("line", at),
    code: text("code", at), operands: text("operands", at), effects: text("effects", at),
    flops: graph.flops[at], saved: graph.saved[at], users: [], later: [], ids: [],
  }));
  nodes.forEach((node, at) => {
    for (const other of graph.refs[at]) nodes[other].users.push(node.name);
    for (const other of graph.after[at]) if (!graph.refs[at].includes(other)) nodes[other].later.push(node.name);
  });
  return nodes;
}

// The nodes of one graph, or of two in which some correspond: leaves with `before`, `after` (one may be null),
// and `sign`, in the order of the new graph; what only the old one has stands behind what it stood behind.
function leavesOf(before, after, pairs) {
  if (!before) return after.map((node) => ({ before: null, after: node, sign: pairs ? "+" : "" }));
  if (!after) return before.map((node) => ({ before: node, after: null, sign: "-" }));
  const [partner, leaves] = [new Map(), []];
  const matched = new Set();
  for (const [old, now, sign] of pairs) {
    partner.set(now, { old, sign });
    matched.add(old);
  }
  const behind = new Map([[-1, []]]); // by the place of the last old node that has a partner
  let last = -1;
  before.forEach((node, at) => {
    if (matched.has(at)) behind.set(last = at, []);
    else behind.get(last).push(node);
  });
  const gone = (place) => {
    for (const node of behind.get(place)) leaves.push({ before: node, after: null, sign: "-" });
  };
  gone(-1);
  after.forEach((node, at) => {
    const found = partner.get(at);
    leaves.push({ before: found ? before[found.old] : null, after: node, sign: found ? found.sign : "+" });
    if (found) gone(found.old);
  });
  return leaves;
}

const FEW_INPUTS = 6; // inputs and parameters that are listed among the ops; more are a row of their own

// Whether a leaf is an input, a parameter or the like: those have names for ops that no op has.
function isInput(leaf) {
  const { op, module } = sideOf(leaf);
  return !module && !op.includes(".") && op !== "output";
}

function sideOf(leaf) {
  return leaf.after || leaf.before;
}

// The leaves by the paths of their modules. A module has `items`, modules and leaves in their order, and for
// both sides how many ops it has and what these cost.
function treeOf(leaves) {
  const root = moduleOf("", "all", null);
  const byPath = new Map([["", root]]);
  const find = (path) => {
    const known = byPath.get(path);
    if (known) return known;
    const at = path.lastIndexOf(".");
    const around = find(at < 0 ? "" : path.slice(0, at));
    const made = moduleOf(path, path.slice(at + 1), around);
    byPath.set(path, made);
    around.items.push(made);
    return made;
  };
  const inputs = leaves.filter(isInput).length > FEW_INPUTS ? moduleOf(null, "inputs", root) : null;
  if (inputs) root.items.push(inputs);
  for (const leaf of leaves) {
    leaf.around = inputs && isInput(leaf) ? inputs : find(sideOf(leaf).module);
    leaf.around.items.push(leaf);
    for (let each = leaf.around; each; each = each.around) {
      each.leaves += 1;
      if (leaf.sign) each.changes += 1;
      for (const side of ["before", "after"]) add(each[side], leaf[side]);
    }
  }
  return root;
}

function moduleOf(path, label, around) {
  const side = () => ({ nodes: 0, flops: 0, saved: 0 });
  return { path, label, around, items: [], leaves: 0, changes: 0, before: side(), after: side() };
}

function add(side, node) {
  if (!node) return;
  side.nodes += 1;
  side.flops += node.flops || 0;
  side.saved += node.saved || 0;
}
