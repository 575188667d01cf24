"use strict";
// Elements shared by all views. Data of the run enter the page through `element` and `name`, as text and never as HTML.

const ROWS = 200; // maximum number of rows of a table; the table's search covers all of them
const COPIED_MS = 1500; // how long a copy button shows "copied"

// Returns a new element. Properties that begin with "on" are event listeners; null and undefined ones are left out.
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

// Returns text from the run as an element. <bdi> keeps right-to-left text from reordering its surroundings, and escapes
// make control, bidirectional and invisible characters visible: they could disguise a test name or a path.
function name(text) {
  const escaped = String(text).replace(/[^\P{C}\t\n]|[\p{Default_Ignorable_Code_Point}\u2800\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu,
    (character) => "\\u" + character.codePointAt(0).toString(16).padStart(4, "0"));
  return element("bdi", {}, escaped);
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

// Returns a <details> that builds its content when it is first opened, because a suite may have thousands of tests.
function folded(summary, build) {
  const box = element("details", { ontoggle: () => { if (box.open) box.fill(); } }, element("summary", {}, summary));
  box.fill = () => { if (box.childElementCount === 1) box.append(...build()); };
  return box;
}

function copyButton(label, text, className = null) {
  const button = element("button", { class: className, onclick: async () => {
    await copy(text());
    button.textContent = "copied";
    setTimeout(() => { button.textContent = label; }, COPIED_MS);
  } }, label);
  return button;
}

function command(text) {
  const shown = name(text);
  return element("div", { class: "command" }, element("pre", {}, shown), copyButton("copy", () => shown.textContent));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // the clipboard API is missing or denied, for example on a page served over plain HTTP
    const area = element("textarea", { readonly: "" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
