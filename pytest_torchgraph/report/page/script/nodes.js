// Returns a table of all nodes of the graphs, including those that the picture folds into one box.
function nodes(pictureData, view) {
  if (!pictureData.nodes.length) return null;
  const body = element("tbody");
  const note = element("p", { class: "note" });
  const fill = (text) => {
    const query = text.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = pictureData.nodes.filter((node) => {
      const line = `${node.name} ${node.op} ${node.module} ${node.result} ${node.line}`.toLowerCase();
      return query.every((word) => line.includes(word));
    });
    body.replaceChildren(...matches.slice(0, ROWS).map((node) => element("tr", {},
      element("td", {}, node.sign), element("td", {}, element("button", {
        onclick: () => view && view.select(node),
      }, name(node.name))), element("td", {}, name(node.op)), element("td", {}, name(node.result)),
      element("td", {}, name(node.line)))));
    note.textContent = matches.length > ROWS ? `the first ${ROWS} of ${matches.length}` : plural(matches.length, "node");
  };
  const box = element("details", { ontoggle: () => { if (!body.childElementCount) fill(""); } },
    element("summary", {}, `All ${plural(pictureData.nodes.length, "node")}`),
    element("input", { type: "search", placeholder: "op, module, shape, line",
      "aria-label": "search the nodes", oninput: (event) => fill(event.target.value) }),
    note,
    element("table", {}, element("thead", {}, element("tr", {},
      ["", "node", "op", "result", "line"].map((title) => element("th", {}, title)))), body));
  return box;
}
