// Colours of the boxes by what their nodes cost, and the mark of what is saved for backward.
// HEAT has the scale, that of the pictures with heat=; see render/look/heat.py.

const SAVED_RADIUS = 3.5; // of the mark, in units of the picture

// The nodes that each box shows; the first is the one that it is named for.
function nodesByBox(each) {
  const boxes = new Map();
  for (const node of each.nodes) {
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

// Browsers that do not know light-dark() keep the light colour.
function coloured(part, property, [light, dark]) {
  part.style[property] = light;
  if (light) part.style[property] = `light-dark(${light}, ${dark})`;
  return part;
}

// What a box costs, null where nothing of it is known; `costs` are those of the old graphs, in their pane.
function costIn(costs, id, nodes, figure) {
  if (costs) return (costs.boxes[id] || { [figure]: 0 })[figure];
  return sumOf(nodes, figure) || (nodes.some((node) => node[figure] === null) ? null : 0);
}

// The total is that of the graphs as they are now: what was removed has its share of it as well.
function heated(each, byBox) {
  const total = {};
  for (const figure of Object.keys(HEAT.units)) {
    total[figure] = sumOf(each.nodes.filter((node) => !node.old), figure) || sumOf(each.nodes, figure);
  }
  const known = Object.keys(total).filter((figure) => total[figure]);
  const legend = element("div", { class: "legend", hidden: "" });
  const step = ({ costs }, id, nodes, figure) => {
    const [value, all] = [costIn(costs, id, nodes, figure), costs ? costs.total[figure] : total[figure]];
    if (!value) return value === null ? "unknown" : "none";
    return HEAT.steps.find(({ least }) => least !== null && value / all >= least).step;
  };
  const paint = (pane, figure) => {
    const { drawn } = pane;
    const used = known.includes(figure) ? figure : "";
    legend.hidden = !used;
    for (const [id, nodes] of byBox) {
      const part = drawn(id);
      const key = part && used ? step(pane, id, nodes, used) : "";
      const fills = key ? HEAT.steps.find((other) => other.step === key).fills : ["", ""];
      if (part) for (const shape of part.querySelectorAll("polygon, path")) {
        if (shape.getAttribute("fill") !== "none") coloured(shape, "fill", fills);
      }
    }
    if (!used) return;
    const unknown = each.nodes.filter((node) => node[used] === null).length;
    legend.replaceChildren(
      element("span", {}, `share of all ${HEAT.units[used][1]}, ${thousands(total[used])} ${HEAT.units[used][0]}:`),
      ...HEAT.steps.map(({ fills, words }) => element("span", { class: "step" },
        coloured(element("span", { class: "swatch" }), "background", fills), words)),
      unknown ? element("span", {}, `unknown for ${plural(unknown, "op")}`) : "");
  };
  const choice = (changed) => {
    if (!known.length) return null;
    const options = [["", "changes"], ...known.map((figure) => [figure, HEAT.units[figure][1]])];
    const select = element("select", { onchange: () => { looks.heat = select.value; changed(); } },
      options.map(([value, text]) => element("option", { value }, text)));
    const update = () => { select.value = known.includes(looks.heat) ? looks.heat : ""; };
    update();
    return { root: element("label", { class: "heat" }, "colours: ", select), update };
  };
  return { paint, choice, legend };
}

// A dot at the corner of each box with a value that is saved for backward.
function markSaved({ drawn, costs }, byBox) {
  for (const [id, nodes] of byBox) {
    const [part, bytes] = [drawn(id), costIn(costs, id, nodes, "saved")];
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
