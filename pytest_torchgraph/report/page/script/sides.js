// The two sides of a difference, before and after, as two panes of one picture: each has its own boxes and
// labels, at the places that they have in the drawing of the difference.

const SVG = "http://www.w3.org/2000/svg";
const BEND = 0.4; // how far an edge runs straight down, in parts of its height

function sidesSwitch(changed) {
  const choices = [[false, "difference"], [true, "before and after"]];
  const buttons = choices.map(([sides, text]) => element("button", {
    onclick: () => { looks.sides = sides; changed(); },
  }, text));
  const update = () => buttons.forEach((button, place) =>
    button.setAttribute("aria-pressed", String(choices[place][0] === looks.sides)));
  update();
  return { root: element("span", { class: "switch", role: "group", "aria-label": "view" }, buttons), update };
}

// Takes away what a side has not, writes the labels that it has, and draws the edges that only it has.
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
    if (texts.length === lines.length) texts.forEach((text, place) => { text.textContent = lines[place]; });
  }
}

// What stands between the two boxes is not on this side, so that the edge has the room.
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
