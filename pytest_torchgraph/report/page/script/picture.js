// Pictures. Each is parsed as SVG without the elements and attributes that can run code or load files, and has its own
// shadow root, so that its ids and classes cannot clash with those of the page.

const DRAG_PX = 4; // movement up to which a pointer has clicked, not dragged
const WHEEL_ZOOM = 1.2; // zoom factor of a wheel step
const BUTTON_ZOOM = 1.4; // zoom factor of a click on a zoom button
const STEP = 0.15; // distance that an arrow key moves, as a share of the visible part
const MIN_WIDTH = 20; // minimum width of the visible part, in units of the picture
const MAX_ZOOM_OUT = 4; // maximum width of the visible part, in widths of the picture
const MARGIN = 1.6; // size of the visible part for a finding, in sizes of its boxes
const MIN_PART = [400, 300]; // and its minimum width and height, so that the neighbours of a small box are visible
const NO_SIZE = [0, 0, 800, 600]; // view box of a picture without one
const PICTURE_STYLE = "svg{width:100%;height:100%;display:block}g.node,g.cluster{cursor:pointer}"
  + ".chosen path,.chosen polygon,.chosen ellipse,.chosen rect{stroke-width:4px}"
  + ".faint{opacity:.2}.absent{display:none}";

// Options shared by all pictures: two panes or one, and the figure that the colours show ("" for changes).
const looks = { sides: false, heat: "" };

// What Graphviz draws. The picture of a stranger's page may hold anything else, and cover the page.
const DRAWN = new Set("a circle defs ellipse g linearGradient path polygon polyline radialGradient rect stop style svg text title tspan".split(" "));
// The parts of a style that may have a colon or an at sign.
const COLOUR_RULE = /@media \((?:screen and )?prefers-color-scheme: dark\)|\b(?:fill|stroke|stop-color): ?#|\bfilter: invert\(0\.95\) hue-rotate\(180deg\)/g;

function parseSvg(text) {
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (svg.nodeName !== "svg") return null;
  for (const part of [svg, ...svg.querySelectorAll("*")]) {
    if (part !== svg && !DRAWN.has(part.nodeName)) part.remove();
    for (const { name: key } of [...part.attributes]) {
      if (/^on/i.test(key) || /href$/i.test(key) || key === "style") part.removeAttribute(key);
    }
  }
  for (const style of svg.querySelectorAll("style")) { // print is never dark
    if (/[\\/@:]/.test(style.textContent.replaceAll(COLOUR_RULE, ""))) style.remove();
    style.textContent = style.textContent.replaceAll("@media (prefers-color-scheme", "@media screen and (prefers-color-scheme");
  }
  return document.importNode(svg, true);
}

// Returns the view box of a whole picture.
function viewBoxOf(svg) {
  const box = svg.viewBox.baseVal;
  return box.width ? [box.x, box.y, box.width, box.height] : [...NO_SIZE];
}

// Returns a frame with one drawing of a picture. `drawn(id)` returns the element with an id, or null if this pane lacks it.
// `byBox` has the nodes of its boxes; `old` has all nodes of the old graphs in their pane, and is null elsewhere.
function pane(svg, label, byBox, old = null) {
  const view = element("div", { class: "view", tabindex: "0", role: "group",
    "aria-label": `${label}: arrows move it, + and - zoom, 0 shows all of it, . and , go from box to box` });
  const shadow = view.attachShadow({ mode: "open" });
  shadow.append(element("style", {}, PICTURE_STYLE), svg);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  const drawn = (id) => {
    const part = shadow.getElementById(id);
    return part && !part.classList.contains("absent") ? part : null;
  };
  return { view, shadow, svg, drawn, byBox, old };
}

function pointIn(svg, x, y) {
  return new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
}

// Returns functions that move the visible part of a picture, which all of its panes share.
function camera(full, panes) {
  let box = [...full];
  const set = (next) => {
    box = next;
    for (const { svg } of panes()) svg.setAttribute("viewBox", box.join(" "));
  };
  const zoom = (factor, x = box[0] + box[2] / 2, y = box[1] + box[3] / 2) => {
    const width = Math.min(Math.max(box[2] * factor, MIN_WIDTH), full[2] * MAX_ZOOM_OUT);
    const scale = width / box[2];
    set([x - (x - box[0]) * scale, y - (y - box[1]) * scale, width, box[3] * scale]);
  };
  const move = (right, down) => set([box[0] + right * box[2], box[1] + down * box[3], box[2], box[3]]);
  const fit = (parts) => {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const part of parts) {
      const frame = part.getBoundingClientRect();
      for (const [x, y] of [[frame.left, frame.top], [frame.right, frame.bottom]]) {
        const point = pointIn(part.ownerSVGElement, x, y);
        [left, top] = [Math.min(left, point.x), Math.min(top, point.y)];
        [right, bottom] = [Math.max(right, point.x), Math.max(bottom, point.y)];
      }
    }
    const width = Math.max((right - left) * MARGIN, MIN_PART[0]);
    const height = Math.max((bottom - top) * MARGIN, MIN_PART[1]);
    set([(left + right - width) / 2, (top + bottom - height) / 2, width, height]);
  };
  return { set, zoom, move, fit, all: () => set([...full]), again: () => set(box), at: () => [...box] };
}

// Adds controls to a pane: the wheel zooms, dragging and arrow keys move. A click calls `clicked` with the element under
// the pointer; the keys `.` and `,` call `stepped` with 1 and -1.
function addControls({ view, svg, shadow }, camera, clicked, stepped) {
  let down = null;
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = pointIn(svg, event.clientX, event.clientY);
    camera.zoom(event.deltaY > 0 ? WHEEL_ZOOM : 1 / WHEEL_ZOOM, x, y);
  }, { passive: false });
  view.addEventListener("pointerdown", (event) => {
    down = { x: event.clientX, y: event.clientY, box: camera.at(), moved: false };
    view.setPointerCapture(event.pointerId);
  });
  view.addEventListener("pointermove", (event) => {
    if (!down) return;
    const scale = 1 / svg.getScreenCTM().a;
    const [dx, dy] = [event.clientX - down.x, event.clientY - down.y];
    if (Math.abs(dx) + Math.abs(dy) > DRAG_PX) down.moved = true;
    if (!down.moved) return;
    view.classList.add("moving");
    camera.set([down.box[0] - dx * scale, down.box[1] - dy * scale, down.box[2], down.box[3]]);
  });
  view.addEventListener("pointerup", (event) => {
    const moved = down && down.moved;
    down = null;
    view.classList.remove("moving");
    if (!moved) clicked(shadow.elementFromPoint(event.clientX, event.clientY));
  });
  view.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };
    if (moves[event.key]) camera.move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") camera.zoom(1 / BUTTON_ZOOM);
    else if (event.key === "-") camera.zoom(BUTTON_ZOOM);
    else if (event.key === "0") camera.all();
    else if (event.key === "." || event.key === ",") stepped(event.key === "." ? 1 : -1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

// Returns a picture with its tools. `show` moves to boxes, `select` describes a node. `start` must be called once the
// picture is in the document, because boxes have no size before; it calls `first`, if set.
function viewer(pictureData, number) {
  const root = element("div", { class: "picture" });
  const drawing = parseSvg(pictureData.svg);
  if (!drawing) {
    root.append(element("p", { class: "note" }, "the picture cannot be read"));
    return { root, show() {}, select() {} };
  }
  const body = element("div", { class: "panes" });
  let panes = [];
  const view = camera(viewBoxOf(drawing), () => panes);
  const shown = { ids: [], way: null };
  const byBox = nodesByBox(pictureData.nodes);
  const heat = heatColours(pictureData);
  const highlight = () => {
    for (const shownPane of panes) {
      for (const part of shownPane.shadow.querySelectorAll(".chosen")) part.classList.remove("chosen");
      for (const part of shown.ids.map(shownPane.drawn).filter(Boolean)) part.classList.add("chosen");
      fade(shownPane, shown.way, byBox);
    }
  };
  const show = (ids, follows = []) => {
    shown.ids = [...ids, ...follows];
    shown.way = null;
    highlight();
    const parts = panes.flatMap((shownPane) => ids.map(shownPane.drawn).filter(Boolean));
    if (parts.length) view.fit(parts);
  };
  const panel = nodePanel(pictureData, { picture: number }, {
    go: (node) => controls.select(node),
    mark: (way) => { shown.way = way; highlight(); },
  });
  const click = (hit) => {
    let part = hit;
    while (part && !byBox.has(part.id)) part = part.parentElement;
    if (!part) return;
    shown.ids = [part.id];
    shown.way = null;
    highlight();
    describe(part.id);
  };
  const describe = (id) => panel.describe(byBox.get(id)[0], byBox.get(id).length);
  // Moves from the chosen box to the next one, from top to bottom. Both panes share one order, because a box has the same
  // place in both.
  const step = (by) => {
    const corner = (id) => {
      const frame = panes.map((shownPane) => shownPane.drawn(id)).find(Boolean).getBoundingClientRect();
      return [Math.round(frame.top), frame.left];
    };
    const boxes = [...byBox.keys()].filter((id) => panes.some((shownPane) => shownPane.drawn(id)))
      .map((id) => ({ id, at: corner(id) })).sort((a, b) => a.at[0] - b.at[0] || a.at[1] - b.at[1]).map(({ id }) => id);
    if (!boxes.length) return;
    const chosenIndex = boxes.findIndex((id) => shown.ids.includes(id));
    const next = boxes[chosenIndex < 0 ? (by > 0 ? 0 : boxes.length - 1) : Math.min(Math.max(chosenIndex + by, 0), boxes.length - 1)];
    show([next]);
    describe(next);
  };
  const decorate = () => {
    if (panes.length > 1) ["before", "after"].forEach((side, place) => onlySide(panes[place], pictureData.sides[side]));
    for (const shownPane of panes) {
      markSaved(shownPane);
      heat.paint(shownPane, looks.heat);
    }
    highlight();
  };
  const layPanes = () => {
    const both = looks.sides && pictureData.sides;
    panes = [pane(drawing.cloneNode(true), both ? "after" : "picture", byBox)];
    if (both) {
      const old = pictureData.graphs.flatMap(({ before }) => (before && before.ids ? nodesOf(before, true) : []));
      panes.unshift(pane(drawing.cloneNode(true), "before", nodesByBox(old), old));
    }
    for (const shownPane of panes) addControls(shownPane, view, click, step);
    body.replaceChildren(...(panes.length === 1 ? [panes[0].view] : ["before", "after"].map((side, place) =>
      element("figure", {}, element("figcaption", {}, side), panes[place].view))));
    view.again();
  };
  const controls = {
    root, show, panes: () => panes,
    select: (node) => { show(node.ids); panel.describe(node); },
    start: () => { decorate(); if (controls.first) controls.first(); },
    clear: () => {
      if (!panel.open() && !shown.way) return false;
      shown.way = null;
      panel.close();
      highlight();
      return true;
    },
  };
  // An option set in one picture applies to all pictures of the page.
  const changed = () => {
    for (const view of views) if (view.refresh) view.refresh();
  };
  const sides = pictureData.sides ? sidesSwitch(changed) : null;
  const colours = heat.choice(changed);
  controls.refresh = () => {
    if (sides) sides.update();
    if (colours) colours.update();
    if (pictureData.sides && (panes.length > 1) !== looks.sides) layPanes();
    decorate();
  };
  layPanes();
  root.append(element("div", { class: "tools" },
    element("button", { onclick: () => view.zoom(1 / BUTTON_ZOOM), "aria-label": "zoom in" }, "+"),
    element("button", { onclick: () => view.zoom(BUTTON_ZOOM), "aria-label": "zoom out" }, "−"),
    element("button", { onclick: view.all }, "whole picture"),
    sides && sides.root, colours && colours.root), body, heat.legend, panel.root);
  views.push(controls);
  return controls;
}
