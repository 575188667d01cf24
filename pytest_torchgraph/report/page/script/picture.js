// Pictures are parsed as SVG, elements and attributes that could run code or load files are removed, and
// each is in a shadow root of its own, so that ids and classes in it cannot clash with those of the page.

const DRAG_PX = 4; // a pointer that moved no further has clicked
const WHEEL_ZOOM = 1.2; // factor of one step of the wheel
const BUTTON_ZOOM = 1.4; // factor of one click on a zoom button
const STEP = 0.15; // how far an arrow key moves, in sizes of the part that is shown
const MIN_WIDTH = 20; // width of the smallest part of a picture that can be shown, in its own units
const MAX_ZOOM_OUT = 4; // widths of the picture that fit into the largest part
const MARGIN = 1.6; // size of the part that is shown for a finding, in sizes of its boxes
const MIN_PART = [400, 300]; // and its least width and height, so that neighbours are seen
const NO_SIZE = [0, 0, 800, 600]; // view box of a picture that does not state one
const PICTURE_STYLE = "svg{width:100%;height:100%;display:block}g.node,g.cluster{cursor:pointer}"
  + ".chosen path,.chosen polygon,.chosen ellipse,.chosen rect{stroke-width:4px}"
  + ".faint{opacity:.2}.absent{display:none}";

// How pictures are shown, while the page is open: in two panes or in one, and what their colours mean.
const looks = { sides: false, heat: "" };

function parsed(text) {
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (svg.nodeName !== "svg") return null;
  for (const bad of svg.querySelectorAll("script, foreignObject, iframe, image, use, animate, set")) {
    bad.remove();
  }
  for (const each of [svg, ...svg.querySelectorAll("*")]) {
    for (const { name: key } of [...each.attributes]) {
      if (/^on/i.test(key) || /href$/i.test(key)) each.removeAttribute(key);
    }
  }
  for (const style of svg.querySelectorAll("style")) { // paper is never dark
    style.textContent = style.textContent.replaceAll("@media (prefers-color-scheme", "@media screen and (prefers-color-scheme");
  }
  return document.importNode(svg, true);
}

// The view box of a whole picture.
function whole(svg) {
  const box = svg.viewBox.baseVal;
  return box.width ? [box.x, box.y, box.width, box.height] : [...NO_SIZE];
}

// One drawing of a picture in a frame. `drawn` finds the element with an id, null where this pane has it not;
// `costs` are what its boxes cost, where that is not what the nodes say.
function pane(svg, label, costs = null) {
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
  return { view, shadow, svg, drawn, costs };
}

function pointIn(svg, x, y) {
  return new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
}

// The part of a picture that is shown, the same in all of its panes.
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

// The wheel zooms, a drag and the arrows move; a click on a box calls `clicked` with the element that was hit, `.` and
// `,` call `stepped` with 1 and -1.
function steered({ view, svg, shadow }, camera, clicked, stepped) {
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

// A picture with its tools. `show` goes to boxes, `select` tells of a node, `start` is called once it is on
// the page, and then calls `first`.
function viewer(each, number) {
  const root = element("div", { class: "picture" });
  const drawing = parsed(each.svg);
  if (!drawing) {
    root.append(element("p", { class: "note" }, "the picture cannot be read"));
    return { root, show() {}, select() {} };
  }
  const body = element("div", { class: "panes" });
  let panes = [];
  const view = camera(whole(drawing), () => panes);
  const shown = { ids: [], way: null };
  const byBox = nodesByBox(each);
  const heat = heated(each, byBox);
  const highlight = () => {
    for (const one of panes) {
      for (const other of one.shadow.querySelectorAll(".chosen")) other.classList.remove("chosen");
      for (const part of shown.ids.map(one.drawn).filter(Boolean)) part.classList.add("chosen");
      fade(one, shown.way, byBox);
    }
  };
  const show = (ids, follows = []) => {
    shown.ids = [...ids, ...follows];
    shown.way = null;
    highlight();
    const parts = panes.flatMap((one) => ids.map(one.drawn).filter(Boolean));
    if (parts.length) view.fit(parts);
  };
  const panel = nodePanel(each, { picture: number }, {
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
    tell(part.id);
  };
  const tell = (id) => panel.describe(byBox.get(id)[0], byBox.get(id).length);
  // From the box that is chosen to the next one, from the top down; boxes of both panes have one order.
  const step = (by) => {
    const corner = (id) => {
      const frame = panes.map((one) => one.drawn(id)).find(Boolean).getBoundingClientRect();
      return [Math.round(frame.top), frame.left];
    };
    const boxes = [...byBox.keys()].filter((id) => panes.some((one) => one.drawn(id)))
      .map((id) => ({ id, at: corner(id) })).sort((a, b) => a.at[0] - b.at[0] || a.at[1] - b.at[1]).map(({ id }) => id);
    if (!boxes.length) return;
    const at = boxes.findIndex((id) => shown.ids.includes(id));
    const next = boxes[at < 0 ? (by > 0 ? 0 : boxes.length - 1) : Math.min(Math.max(at + by, 0), boxes.length - 1)];
    show([next]);
    tell(next);
  };
  const dressed = () => {
    if (panes.length > 1) ["before", "after"].forEach((side, place) => onlySide(panes[place], each.sides[side]));
    for (const one of panes) {
      markSaved(one, byBox);
      heat.paint(one, looks.heat);
    }
    highlight();
  };
  const lay = () => {
    panes = looks.sides && each.sides
      ? [pane(drawing.cloneNode(true), "before", each.sides.before.costs), pane(drawing.cloneNode(true), "after")]
      : [pane(drawing.cloneNode(true), "picture")];
    for (const one of panes) steered(one, view, click, step);
    body.replaceChildren(...(panes.length === 1 ? [panes[0].view] : ["before", "after"].map((side, place) =>
      element("figure", {}, element("figcaption", {}, side), panes[place].view))));
    view.again();
  };
  const controls = {
    root, show, panes: () => panes,
    select: (node) => { show(node.ids); panel.describe(node); },
    start: () => { dressed(); if (controls.first) controls.first(); },
    clear: () => {
      if (!panel.open() && !shown.way) return false;
      shown.way = null;
      panel.close();
      highlight();
      return true;
    },
  };
  // What is chosen in one picture is chosen in all of the page.
  const changed = () => {
    for (const other of views) if (other.refresh) other.refresh();
  };
  const sides = each.sides ? sidesSwitch(changed) : null;
  const colours = heat.choice(changed);
  controls.refresh = () => {
    if (sides) sides.update();
    if (colours) colours.update();
    if (each.sides && (panes.length > 1) !== looks.sides) lay();
    dressed();
  };
  lay();
  root.append(element("div", { class: "tools" },
    element("button", { onclick: () => view.zoom(1 / BUTTON_ZOOM), "aria-label": "zoom in" }, "+"),
    element("button", { onclick: () => view.zoom(BUTTON_ZOOM), "aria-label": "zoom out" }, "−"),
    element("button", { onclick: view.all }, "whole picture"),
    sides && sides.root, colours && colours.root), body, heat.legend, panel.root);
  views.push(controls);
  return controls;
}
