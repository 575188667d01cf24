// One test: its differences, pictures, message and captures.

const HANGING = 2; // characters that a line of a finding is indented where it goes on

function detail(test) {
  return [
    element("h2", {}, ...title(test)),
    element("p", { class: "where linked" }, name(test.where), ` · ${test.seconds.toFixed(2)} s `, linkButton({ test: test.id })),
    ...test.differences.flatMap((each, number) => difference(each, test.differences[number - 1])),
    ...test.pictures.flatMap((each) => [element("h3", {}, name(each.title)), ...picture(each)]),
    ...(test.message ? [element("h3", {}, "Message"), element("pre", {}, test.message)] : []),
    ...test.ranks.flatMap(ranks),
    ...test.captures.flatMap((each) => capture(each)),
  ];
}

function noParts() {
  return { findings: [], captures: [], pictures: [], outlines: [], at: -1 }; // `at`: the finding that was chosen last
}

// What is said of a finding below its summary, a line each, which goes on below where it begins.
function linesOf(finding) {
  return (finding.more ? finding.more.split("\n") : []).map((line) => element("span", {
    class: "more", style: `padding-left: ${Math.max(line.search(/\S/), 0) + HANGING}ch`,
  }, name(line.trimStart())));
}

// The findings, each a button that shows its boxes in the picture, and its rows in the outline where that is open; the
// first is shown at once.
function findings(each, view, reveal = () => {}) {
  const own = each.findings.map((finding) => {
    const link = { test: tests[current].id, finding: shownParts.findings.length + 1 };
    const show = () => {
      for (const other of own) other.button.removeAttribute("aria-current");
      button.setAttribute("aria-current", "true");
      if (view) view.show(finding.ids, finding.follows);
      reveal(finding);
    };
    const choose = (linked = false) => {
      show();
      shownParts.at = link.finding - 1;
      if (linked) linkTo(link);
    };
    const button = element("button", {
      title: view && finding.ids.length ? "show in the picture" : null, onclick: () => choose(true),
    }, element("span", { class: "sign" }, finding.sign), name(finding.summary),
    linesOf(finding));
    shownParts.findings.push({ button, choose });
    return { button, show, at: link.finding - 1, row: element("li", {}, button, linkButton(link)) };
  });
  if (view && own.length) view.first = () => {
    own[0].show();
    if (shownParts.at < 0) shownParts.at = own[0].at;
  };
  return element("ul", { class: "findings" }, own.map((one) => one.row));
}

// The picture of a difference or of a failed check, for which an address has a number.
function numberedViewer(each) {
  const number = shownParts.pictures.length + 1;
  const view = viewer(each, number);
  shownParts.pictures.push({ view, nodes: each.nodes });
  return view;
}

// A comparison that failed; of several ranks each class has its own, and what is of all is said once.
function difference(each, before) {
  const again = each.ranks && before && before.file === each.file;
  const view = each.svg ? numberedViewer(each) : null;
  const sides = each.graphs && each.graphs.length ? comparedOutline(each, view) : null;
  const changes = findings(each, view, sides ? sides.reveal : undefined);
  const accept = again ? [] : [element("p", {}, "If the change is intended, accept it:"), command(each.accept)];
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
    sides && sides.root,
    nodes(each, view),
  ].filter((part) => part !== null);
}

// The graphs before and after, side by side; what is chosen there is shown in the picture as well, and `reveal` shows
// there the node of a finding.
function comparedOutline(each, view) {
  const key = (node) => `${node.old} ${node.graph} ${node.name}`;
  const inPicture = new Map(each.nodes.map((node) => [key(node), node]));
  let rows = null; // the outline, once it was opened
  let wanted = null;
  const reveal = (finding) => {
    const boxes = new Set(finding.ids);
    const own = each.nodes.filter((node) => node.ids.some((id) => boxes.has(id)));
    wanted = own.find((node) => node.sign) || own[0] || null;
    if (rows && root.open) follow();
  };
  const follow = () => {
    const node = wanted && rows.nodes.find((other) => key(other) === key(wanted));
    if (node) rows.reveal(node);
  };
  const root = foldedOutline("The graphs, before and after", () => each.graphs, {
    compared: true,
    opened: (outline) => { rows = outline; follow(); },
    chosen: (node) => {
      const found = inPicture.get(key(node));
      if (view && found) view.show(found.ids);
    },
  });
  return { root, reveal };
}

function picture(each) {
  if (!each.svg) return [element("p", { class: "note" }, each.note || "no picture")];
  const view = numberedViewer(each);
  return [findings(each, view), view.root, each.note ? element("p", { class: "note" }, each.note) : null,
    nodes(each, view)].filter((part) => part !== null);
}

// A capture, or the one that stands for ranks, which `who` names.
function capture(each, who = null, open = false) {
  const heading = element("h3", {}, who || ["Capture ", Number.isInteger(each.rank) ? `of rank ${each.rank} ` : "",
    name(each.via ? `via ${each.via}` : "of a watch")]);
  shownParts.captures.push(heading);
  const parts = [element("div", { class: "linked" }, heading,
    linkButton({ test: tests[current].id, capture: shownParts.captures.length }))];
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
  for (const list of each.blocks || []) parts.push(blocks(list));
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
    const summary = [name(graph.name), ` · ${about}`, plural(graph.count, "node")];
    const counts = element("table", {}, rows);
    if (graph.nodes) {
      const box = foldedOutline(summary, async () => (await part(graph.nodes)).map((after) => ({ before: null, after })), {});
      if (graph.runs) box.classList.add("eager");
      box.append(element("details", {}, element("summary", {}, plural(graph.ops.length, "kind") + " of ops"), counts));
      parts.push(box);
    } else parts.push(element("details", { class: graph.runs ? "eager" : null }, element("summary", {}, summary), counts));
  }
  return parts;
}

// What modules cost, each with all below it; of a comparison those that cost another amount than before.
