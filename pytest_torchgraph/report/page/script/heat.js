// Colours of boxes by cost, and marks for values saved for backward. HEAT is the scale of drawings with `heat=`, see
// render/colours.py.

const SAVED_RADIUS = 3.5; // radius of the mark, in units of the picture

// Maps the id of each box to its nodes. The first node gives the box its name.
function nodesByBox(nodes) {
  const boxes = new Map();
  for (const node of nodes) {
    for (const id of node.ids) {
      if (!boxes.has(id)) boxes.set(id, []);
      boxes.get(id).push(node);
    }
  }
  return boxes;
}

function sumOf(nodes, figure) {
  return nodes.reduce((sum, node) => sum + (node[figure] || 0), 0);
}

// Returns the cost of a box, or null if unknown.
function boxCost(nodes, figure) {
  return sumOf(nodes, figure) || (nodes.some((node) => node[figure] === null) ? null : 0);
}

// Returns the colours of a picture by cost. Shares, also those of removed nodes, are of the new graphs' total; in the
// pane of the old graphs, of their own total.
function heatColours(pictureData) {
  const total = {};
  for (const figure of Object.keys(HEAT.units)) {
    total[figure] = sumOf(pictureData.nodes.filter((node) => !node.old), figure) || sumOf(pictureData.nodes, figure);
  }
  const available = Object.keys(total).filter((figure) => total[figure]);
  const legend = element("div", { class: "legend", hidden: "" });
  const step = ({ old }, nodes, figure) => {
    const [value, whole] = [boxCost(nodes, figure), old ? sumOf(old, figure) : total[figure]];
    if (!value) return value === null ? "unknown" : "none";
    return HEAT.steps.find(({ least }) => least !== null && value / whole >= least).step;
  };
  const paint = (pane, figure) => {
    const { drawn, byBox } = pane;
    const used = available.includes(figure) ? figure : "";
    legend.hidden = !used;
    for (const [id, nodes] of byBox) {
      const part = drawn(id);
      const key = part && used ? step(pane, nodes, used) : "";
      const fill = key ? HEAT.steps.find((entry) => entry.step === key).fill : "";
      if (part) for (const shape of part.querySelectorAll("polygon, path")) {
        if (shape.getAttribute("fill") !== "none") shape.style.fill = fill;
      }
    }
    if (!used) return;
    const unknown = pictureData.nodes.filter((node) => node[used] === null).length;
    legend.replaceChildren(
      element("span", {}, `share of all ${HEAT.units[used][1]}, ${thousands(total[used])} ${HEAT.units[used][0]}:`),
      ...HEAT.steps.map(({ fill, words }) => element("span", { class: "step" },
        element("span", { class: "swatch", style: `background: ${fill}` }), words)),
      unknown ? element("span", {}, `unknown for ${plural(unknown, "op")}`) : "");
  };
  const choice = (changed) => {
    if (!available.length) return null;
    const options = [["", "changes"], ...available.map((figure) => [figure, HEAT.units[figure][1]])];
    const select = element("select", { onchange: () => { looks.heat = select.value; changed(); } },
      options.map(([value, text]) => element("option", { value }, text)));
    const update = () => { select.value = available.includes(looks.heat) ? looks.heat : ""; };
    update();
    return { root: element("label", { class: "heat" }, "colours: ", select), update };
  };
  return { paint, choice, legend };
}

// Adds a dot to the corner of each box with a value saved for backward.
function markSaved({ drawn, byBox }) {
  for (const [id, nodes] of byBox) {
    const [part, bytes] = [drawn(id), boxCost(nodes, "saved")];
    if (!part || !bytes || part.querySelector(".kept")) continue;
    const box = part.getBBox();
    const dot = document.createElementNS(SVG, "circle");
    const title = document.createElementNS(SVG, "title");
    title.textContent = `${thousands(bytes)} B saved for backward`;
    for (const [key, value] of [["class", "kept"], ["cx", box.x + box.width], ["cy", box.y], ["r", SAVED_RADIUS],
      ["fill", HEAT.kept], ["stroke", "white"]]) dot.setAttribute(key, value);
    dot.append(title);
    part.append(dot);
  }
}
