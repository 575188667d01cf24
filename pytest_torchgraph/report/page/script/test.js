// One test: its differences, pictures, message and captures.

const HANGING = 2; // indent of the continuation of a wrapped line of a finding, in characters

function detail(test) {
  return [
    element("h2", {}, ...title(test)),
    element("p", { class: "where linked" }, name(test.where), ` · ${test.seconds.toFixed(2)} s `, linkButton({ test: test.id })),
    ...test.differences.flatMap((comparison, number) => difference(comparison, test.differences[number - 1])),
    ...test.pictures.flatMap((check) => [element("h3", {}, name(check.title)), ...picture(check)]),
    ...(test.message ? [element("h3", {}, "Message"), element("pre", {}, test.message)] : []),
    ...test.ranks.flatMap(ranks),
    ...test.captures.flatMap((captured) => capture(captured)),
  ];
}

function noParts() {
  return { findings: [], captures: [], pictures: [], outlines: [], at: -1 }; // `at`: index of the last chosen finding
}

// Returns the lines below a finding's summary, each with a hanging indent where it wraps.
function linesOf(finding) {
  return (finding.more ? finding.more.split("\n") : []).map((line) => element("span", {
    class: "more", style: `padding-left: ${Math.max(line.search(/\S/), 0) + HANGING}ch`,
  }, name(line.trimStart())));
}

// Returns the findings as buttons. A click shows the finding's boxes in the picture and its rows in the outline, if open.
// The first finding is shown when the view opens.
function findings(comparison, view, reveal = () => {}) {
  const entries = comparison.findings.map((finding) => {
    const link = { test: tests[current].id, finding: shownParts.findings.length + 1 };
    const show = () => {
      for (const entry of entries) entry.button.removeAttribute("aria-current");
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
  if (view && entries.length) view.first = () => {
    entries[0].show();
    if (shownParts.at < 0) shownParts.at = entries[0].at;
  };
  return element("ul", { class: "findings" }, entries.map((entry) => entry.row));
}

// Returns the picture of a difference or of a failed check, and registers it under the number for its address.
function numberedViewer(pictureData) {
  const number = shownParts.pictures.length + 1;
  const view = viewer(pictureData, number);
  shownParts.pictures.push({ view, nodes: pictureData.nodes });
  return view;
}

// Returns a failed comparison. Classes of ranks have one comparison each: the heading and the accept command, which they
// share, appear only with the first (`previous` is the comparison before it).
function difference(compared, previous) {
  const comparison = { ...compared, nodes: pictureNodes(compared.graphs) };
  const isRepeated = comparison.ranks && previous && previous.file === comparison.file;
  const view = comparison.svg ? numberedViewer(comparison) : null;
  const sides = comparison.graphs.length ? comparedOutline(comparison, view) : null;
  const changes = findings(comparison, view, sides ? sides.reveal : undefined);
  const accept = isRepeated ? [] : [element("p", {}, "If the change is intended, accept it:"), command(comparison.accept)];
  const lines = comparison.diff.map((line) => element("span", {
    class: /^(\+\+\+|---|@@)/.test(line) ? "at" : { "+": "add", "-": "del" }[line[0]] || "",
  }, line + "\n"));
  return [
    ...(isRepeated ? []
      : [element("h3", {}, "Difference from ", name(comparison.file)), element("p", {}, name(comparison.headline))]),
    ...(comparison.ranks ? [...accept, element("h3", {}, name(comparison.ranks)), changes] : [changes, ...accept]),
    element("div", { class: "beside" },
      element("div", {}, view ? view.root : element("p", { class: "note" }, comparison.note)),
      element("div", {}, lines.length ? element("pre", {}, lines) : null)),
    view && comparison.note ? element("p", { class: "note" }, comparison.note) : null,
    sides && sides.root,
    nodes(comparison, view),
  ].filter((part) => part !== null);
}

// Returns the old and new graphs as one outline. Choosing a node there shows it in the picture; `reveal` shows a finding's
// node in the outline.
function comparedOutline(comparison, view) {
  const key = (node) => `${node.old} ${node.graph} ${node.name}`;
  const inPicture = new Map(comparison.nodes.map((node) => [key(node), node]));
  let outlineView = null; // the outline, null until it is opened
  let wantedNode = null;
  const reveal = (finding) => {
    const boxes = new Set(finding.ids);
    const findingNodes = comparison.nodes.filter((node) => node.ids.some((id) => boxes.has(id)));
    wantedNode = findingNodes.find((node) => node.sign) || findingNodes[0] || null;
    if (outlineView && root.open) revealWanted();
  };
  const revealWanted = () => {
    const node = wantedNode && outlineView.nodes.find((candidate) => key(candidate) === key(wantedNode));
    if (node) outlineView.reveal(node);
  };
  const root = foldedOutline("The graphs, before and after", () => comparison.graphs, {
    compared: true,
    opened: (outline) => { outlineView = outline; revealWanted(); },
    chosen: (node) => {
      const drawnNode = inPicture.get(key(node));
      if (view && drawnNode) view.show(drawnNode.ids);
    },
  });
  return { root, reveal };
}

function picture(checked) {
  if (!checked.svg) return [element("p", { class: "note" }, checked.note || "no picture")];
  const check = { ...checked, nodes: pictureNodes(checked.graphs) };
  const view = numberedViewer(check);
  return [findings(check, view), view.root, check.note ? element("p", { class: "note" }, check.note) : null,
    nodes(check, view)].filter((part) => part !== null);
}

// Returns a capture, or the capture of a class of equal ranks, with `who` as its heading.
function capture(captured, who = null, open = false) {
  const heading = element("h3", {}, who || ["Capture ", Number.isInteger(captured.rank) ? `of rank ${captured.rank} ` : "",
    name(captured.via ? `via ${captured.via}` : "of a watch")]);
  shownParts.captures.push(heading);
  const parts = [element("div", { class: "linked" }, heading,
    linkButton({ test: tests[current].id, capture: shownParts.captures.length }))];
  if (captured.note) parts.push(element("p", { class: "note" }, name(captured.note)));
  for (const graphBreak of captured.breaks) {
    parts.push(element("div", { class: "card" },
      element("strong", {}, "graph break "), name(graphBreak.kind), ": ", name(graphBreak.reason),
      element("dl", {}, element("dt", {}, "line"), element("dd", {}, name(`${graphBreak.file}:${graphBreak.line}`)),
        element("dt", {}, "code"), element("dd", {}, element("code", {}, name(graphBreak.code))),
        element("dt", {}, "hint"), element("dd", {}, name(graphBreak.hint || "none")),
        element("dt", {}, "times"), element("dd", {}, String(graphBreak.occurrences)))));
  }
  for (const recompile of captured.recompiles) {
    parts.push(element("div", { class: "card" },
      element("strong", {}, "recompile "), name(recompile.function), ` (`, name(`${recompile.file}:${recompile.line}`), ")",
      element("ul", {}, recompile.reasons.map((reason) => element("li", {}, name(reason)))),
      element("ul", { class: "details" }, recompile.details.map((line) => element("li", {}, name(line.trim()))))));
  }
  if (captured.collectives) parts.push(collectives(captured.collectives, open));
  if (captured.cost) parts.push(cost(captured.cost));
  for (const list of captured.blocks || []) parts.push(blocks(list));
  let cause = null;
  for (const graph of captured.graphs) {
    // Eager graphs follow the graph break that caused them; consecutive graphs with the same break share its line.
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
    const summary = [name(graph.name), ` · ${about}`, plural(graph.count, "op")];
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
