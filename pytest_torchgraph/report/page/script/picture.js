// Pictures are parsed as SVG, elements and attributes that could run code or load files are removed, and
// each is in a shadow root of its own, so that ids and classes in it cannot clash with those of the page.

const DRAG_PX = 4; // a pointer that moved no further has clicked
const WHEEL_ZOOM = 1.2; // factor of one step of the wheel
const BUTTON_ZOOM = 1.4; // factor of one click on a zoom button
const MIN_WIDTH = 20; // width of the smallest part of a picture that can be shown, in its own units
const MAX_ZOOM_OUT = 4; // widths of the picture that fit into the largest part
const MARGIN = 1.6; // size of the part that is shown for a finding, in sizes of its boxes
const MIN_PART = [400, 300]; // and its least width and height, so that neighbours are seen
const NO_SIZE = [0, 0, 800, 600]; // view box of a picture that does not state one

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
  return document.importNode(svg, true);
}

function viewer(each) {
  const root = element("div", { class: "picture" });
  const view = element("div", { class: "view" });
  const panel = element("div", { class: "card", hidden: "" });
  const shadow = view.attachShadow({ mode: "open" });
  const svg = parsed(each.svg);
  if (!svg) {
    root.append(element("p", { class: "note" }, "the picture cannot be read"));
    return { root, show() {}, select() {} };
  }
  const style = document.createElement("style");
  style.textContent = "svg{width:100%;height:100%;display:block}g.node,g.cluster{cursor:pointer}"
    + ".chosen path,.chosen polygon,.chosen ellipse,.chosen rect{stroke-width:4px}"
    + ".faint{opacity:.25}";
  shadow.append(style, svg);
  const full = svg.viewBox.baseVal.width
    ? [svg.viewBox.baseVal.x, svg.viewBox.baseVal.y, svg.viewBox.baseVal.width, svg.viewBox.baseVal.height]
    : [...NO_SIZE];
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  let box = [...full];
  const set = (next) => { box = next; svg.setAttribute("viewBox", box.join(" ")); };
  const zoom = (factor, x = box[0] + box[2] / 2, y = box[1] + box[3] / 2) => {
    const width = Math.min(Math.max(box[2] * factor, MIN_WIDTH), full[2] * MAX_ZOOM_OUT);
    const scale = width / box[2];
    set([x - (x - box[0]) * scale, y - (y - box[1]) * scale, width, box[3] * scale]);
  };
  const at = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [point.x, point.y];
  };
  const fit = (parts) => {
    const matrix = svg.getScreenCTM().inverse();
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const part of parts) {
      const frame = part.getBoundingClientRect();
      for (const [x, y] of [[frame.left, frame.top], [frame.right, frame.bottom]]) {
        const point = new DOMPoint(x, y).matrixTransform(matrix);
        [left, top] = [Math.min(left, point.x), Math.min(top, point.y)];
        [right, bottom] = [Math.max(right, point.x), Math.max(bottom, point.y)];
      }
    }
    const width = Math.max((right - left) * MARGIN, MIN_PART[0]);
    const height = Math.max((bottom - top) * MARGIN, MIN_PART[1]);
    set([(left + right - width) / 2, (top + bottom - height) / 2, width, height]);
  };
  const drawn = (id) => shadow.getElementById(id);
  const choose = (parts) => {
    for (const other of shadow.querySelectorAll(".chosen")) other.classList.remove("chosen");
    for (const part of parts) part.classList.add("chosen");
  };
  const show = (ids, follows = []) => {
    const parts = ids.map(drawn).filter(Boolean);
    choose([...parts, ...follows.map(drawn).filter(Boolean)]);
    if (parts.length) fit(parts);
  };
  const byId = new Map();
  for (const node of each.nodes) for (const id of node.ids) if (!byId.has(id)) byId.set(id, node);
  const describe = (node) => {
    const users = node.users.length ? node.users.join(", ") : "none";
    panel.hidden = false;
    panel.replaceChildren(element("strong", {}, name(node.name)), element("dl", {},
      [["op", node.op], ["result", node.result || "unknown"], ["module", node.module || "none"],
        ["line", node.line || "unknown"], ["code", node.code], ["operands", node.operands], ["users", users]]
        .filter(([, value]) => value)
        .flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, name(value))])));
  };
  let down = null;
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? WHEEL_ZOOM : 1 / WHEEL_ZOOM, ...at(event));
  }, { passive: false });
  view.addEventListener("pointerdown", (event) => {
    down = { x: event.clientX, y: event.clientY, box: [...box], moved: false };
    view.setPointerCapture(event.pointerId);
  });
  view.addEventListener("pointermove", (event) => {
    if (!down) return;
    const scale = 1 / svg.getScreenCTM().a;
    const [dx, dy] = [event.clientX - down.x, event.clientY - down.y];
    if (Math.abs(dx) + Math.abs(dy) > DRAG_PX) down.moved = true;
    if (!down.moved) return;
    view.classList.add("moving");
    set([down.box[0] - dx * scale, down.box[1] - dy * scale, down.box[2], down.box[3]]);
  });
  view.addEventListener("pointerup", (event) => {
    const moved = down && down.moved;
    down = null;
    view.classList.remove("moving");
    if (moved) return;
    let part = shadow.elementFromPoint(event.clientX, event.clientY);
    while (part && !byId.has(part.id)) part = part.parentElement;
    if (part) {
      choose([part]);
      describe(byId.get(part.id));
    }
  });
  root.append(element("div", { class: "tools" },
    element("button", { onclick: () => zoom(1 / BUTTON_ZOOM), "aria-label": "zoom in" }, "+"),
    element("button", { onclick: () => zoom(BUTTON_ZOOM), "aria-label": "zoom out" }, "−"),
    element("button", { onclick: () => set([...full]) }, "whole picture")), view, panel);
  const controls = { root, show, select: (node) => { show(node.ids); describe(node); } };
  views.push(controls);
  return controls;
}
