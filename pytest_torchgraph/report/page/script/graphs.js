// Graphs as report/page/nodes.py writes them, in columns: read into nodes, and arranged as a tree of modules.

// Returns the nodes of a graph with the keys of a picture's nodes and their `number` in the graph.
function nodesOf(graph, old = false) {
  const text = (column, at) => graph.texts[graph[column][at]];
  const ends = new Set(graph.ends);
  const nodes = graph.names.map((nodeName, at) => ({
    name: nodeName, graph: graph.name, old, number: at, end: ends.has(at) ? graph.end : "",
    op: text("op", at), module: text("module", at), result: text("result", at), line: text("line", at),
    code: text("code", at), operands: text("operands", at), effects: text("effects", at),
    flops: graph.flops[at], saved: graph.saved[at], users: [], later: [], ids: graph.ids ? graph.ids[at] : [],
  }));
  nodes.forEach((node, at) => {
    for (const operand of graph.refs[at]) nodes[operand].users.push(node.name);
    for (const earlier of graph.after[at]) if (!graph.refs[at].includes(earlier)) nodes[earlier].later.push(node.name);
  });
  return nodes;
}

// Returns the leaves of an outline: the nodes of a graph, or of two graphs with matched nodes in `pairs`. A leaf has
// `before`, `after` (one may be null) and `sign`. Leaves have the order of the new graph; a removed node follows the last
// matched node before it in the old graph.
function leavesOf(before, after, pairs) {
  if (!before) return after.map((node) => ({ before: null, after: node, sign: pairs ? "+" : "" }));
  if (!after) return before.map((node) => ({ before: node, after: null, sign: "-" }));
  const [matchOf, leaves] = [new Map(), []];
  const matched = new Set();
  for (const [old, now, sign] of pairs) {
    matchOf.set(now, { old, sign });
    matched.add(old);
  }
  const removedAfter = new Map([[-1, []]]); // removed nodes by the number of the last matched node before them, -1 if none
  let lastMatched = -1;
  before.forEach((node, at) => {
    if (matched.has(at)) removedAfter.set(lastMatched = at, []);
    else removedAfter.get(lastMatched).push(node);
  });
  const pushRemoved = (number) => {
    for (const node of removedAfter.get(number)) leaves.push({ before: node, after: null, sign: "-" });
  };
  pushRemoved(-1);
  after.forEach((node, at) => {
    const match = matchOf.get(at);
    leaves.push({ before: match ? before[match.old] : null, after: node, sign: match ? match.sign : "+" });
    if (match) pushRemoved(match.old);
  });
  return leaves;
}

// Returns the nodes of a picture, each with its sign: those of the new graphs, and the removed nodes of the old ones. Its
// graphs have `ids`; the bodies of higher-order ops have none.
function pictureNodes(graphs) {
  return graphs.filter(({ before, after }) => (after || before).ids).flatMap(({ before, after, pairs }) =>
    leavesOf(before && nodesOf(before, true), after && nodesOf(after), pairs)
      .map((leaf) => Object.assign(sideOf(leaf), { sign: leaf.sign })));
}

const FEW_INPUTS = 6; // maximum number of inputs listed among the ops; more are folded into one row

// Returns true for an input, a parameter or the like. Their `op` is a word such as "input"; names of ops have a dot.
function isInput(leaf) {
  const { op, module } = sideOf(leaf);
  return !module && !op.includes(".") && op !== "output";
}

function sideOf(leaf) {
  return leaf.after || leaf.before;
}

// Returns the tree of modules with the leaves. A module has `items` (submodules and leaves in order), and for each side
// the number of its nodes and their cost, submodules included.
function treeOf(leaves) {
  const root = moduleOf("", "all", null);
  const byPath = new Map([["", root]]);
  const find = (path) => {
    const existing = byPath.get(path);
    if (existing) return existing;
    const at = path.lastIndexOf(".");
    const parent = find(at < 0 ? "" : path.slice(0, at));
    const created = moduleOf(path, path.slice(at + 1), parent);
    byPath.set(path, created);
    parent.items.push(created);
    return created;
  };
  const inputs = leaves.filter(isInput).length > FEW_INPUTS ? moduleOf(null, "inputs", root) : null;
  if (inputs) root.items.push(inputs);
  for (const leaf of leaves) {
    leaf.parent = inputs && isInput(leaf) ? inputs : find(sideOf(leaf).module);
    leaf.parent.items.push(leaf);
    for (let module = leaf.parent; module; module = module.parent) {
      module.leaves += 1;
      if (leaf.sign) module.changes += 1;
      for (const side of ["before", "after"]) add(module[side], leaf[side]);
    }
  }
  return root;
}

function moduleOf(path, label, parent) {
  const side = () => ({ nodes: 0, flops: 0, saved: 0 });
  return { path, label, parent, items: [], leaves: 0, changes: 0, before: side(), after: side() };
}

function add(side, node) {
  if (!node) return;
  side.nodes += 1;
  side.flops += node.flops || 0;
  side.saved += node.saved || 0;
}
