"use strict";
// What all of the page is made of. Everything that comes from the run is put into it as text.

const ROWS = 200; // rows of a long table; its search reaches the others
const COPIED_MS = 1500; // how long a button says that its text was copied

function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") node.className = value || "";
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child !== null) node.append(child);
  return node;
}

// Text that a user chose, isolated for writing direction; control characters are shown as escapes.
function name(text) {
  const shown = String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  return element("bdi", {}, shown);
}

function plural(count, noun) {
  return `${thousands(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function times(count) {
  return count === 1 ? "once" : `${count} times`;
}

function thousands(number) {
  return number.toLocaleString("en");
}

// A part that is built when it is opened: a suite may have thousands of tests.
function folded(summary, build) {
  const box = element("details", { ontoggle: () => { if (box.open) box.fill(); } }, element("summary", {}, summary));
  box.fill = () => { if (box.childElementCount === 1) box.append(...build()); };
  return box;
}

function copyButton(label, text, kind = null) {
  const button = element("button", { class: kind, onclick: async () => {
    await copy(text());
    button.textContent = "copied";
    setTimeout(() => { button.textContent = label; }, COPIED_MS);
  } }, label);
  return button;
}

function command(text) {
  return element("div", { class: "command" }, element("pre", {}, text), copyButton("copy", () => text));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { readonly: "" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
