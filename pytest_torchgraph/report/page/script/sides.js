// The sides of a difference as two panes of one picture. Each pane has only the boxes and labels of its side, at their
// places in the drawing of the difference.

const SVG = "http://www.w3.org/2000/svg";
const BEND = 0.4; // distance of the control points of an edge from its ends, as a share of its height

function sidesSwitch(changed) {
  const choices = [[false, "difference"], [true, "before and after"]];
  const buttons = choices.map(([sides, text]) => element("button", {
    onclick: () => { looks.sides = sides; changed(); },
  }, text));
  const update = () => buttons.forEach((button, index) =>
    button.setAttribute("aria-pressed", String(choices[index][0] === looks.sides)));
  update();
  return { root: element("span", { class: "switch", role: "group", "aria-label": "view" }, buttons), update };
}

// Reduces a drawing of a difference to one side: hides the boxes of the other side, sets the side's own labels, and draws
// the edges that only this side has.
function onlySide(pane, side) {
  if (pane.dressed) return;
  pane.dressed = true;
  for (const [tail, head] of side.edges) edgeBetween(pane, pane.drawn(tail), pane.drawn(head));
  for (const id of side.without) {
    const part = pane.drawn(id);
    if (part) part.classList.add("absent");
  }
  for (const [id, lines] of Object.entries(side.labels)) {
    const part = pane.drawn(id);
    const texts = part ? part.querySelectorAll("text") : [];
    if (texts.length === lines.length) texts.forEach((text, index) => { text.textContent = lines[index]; });
  }
}

// Draws an edge between two boxes. It needs no route around other boxes: those between the two are hidden.
function edgeBetween(pane, tail, head) {
  if (!tail || !head) return;
  const [from, to] = [tail.getBBox(), head.getBBox()];
  const [x, y, right, bottom] = [from.x + from.width / 2, from.y + from.height, to.x + to.width / 2, to.y];
  const bend = (bottom - y) * BEND;
  const edge = document.createElementNS(SVG, "g");
  edge.setAttribute("class", "edge");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", `M${x},${y}C${x},${y + bend} ${right},${bottom - bend} ${right},${bottom - 4}`);
  path.setAttribute("fill", "none");
  const tip = document.createElementNS(SVG, "polygon");
  tip.setAttribute("points", `${right - 2.5},${bottom - 6} ${right + 2.5},${bottom - 6} ${right},${bottom}`);
  for (const part of [path, tip]) part.setAttribute("stroke", "#666666");
  tip.setAttribute("fill", "#666666");
  edge.append(path, tip);
  tail.parentNode.append(edge);
}
