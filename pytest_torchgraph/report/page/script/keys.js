// Keyboard shortcuts, disabled while the user types in a field.

const KEYS = [
  ["j  k", "next and previous test"], ["f", "next test that failed"], ["n  p", "next and previous finding"], ["c", "causes"],
  ["a", "torch.compile in this suite"], ["t", "list of the tests"], ["/", "search the tests"],
  ["b", "difference, or before and after"], ["arrows", "move the focused picture"],
  ["+  -  0", "zoom in, zoom out, show the whole picture"], [".  ,", "next and previous box of the picture"], ["Esc", "close panel or box"], ["?", "these keys"],
];
const help = element("dialog", { "aria-labelledby": "keys-heading" },
  element("h2", { id: "keys-heading" }, "Keys"),
  element("dl", {}, KEYS.flatMap(([keys, words]) => [
    element("dt", {}, keys.split("  ").flatMap((key, index) => [index ? " " : "", element("kbd", {}, key)])),
    element("dd", {}, words)])),
  element("button", { onclick: () => help.close() }, "close"));
document.body.append(help);

function isTextField(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

// Focuses the heading of a new view, so that a screen reader continues there.
function focusHeading() {
  const heading = document.querySelector("main h2");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

async function nextTest(step, accepts = () => true) {
  const numbers = matching().filter((test) => accepts(test) || test.number === current).map((test) => test.number);
  if (!numbers.length) return;
  const at = numbers.indexOf(current);
  const next = at < 0 ? (step > 0 ? 0 : numbers.length - 1) : Math.min(Math.max(at + step, 0), numbers.length - 1);
  if (numbers[next] === current) return;
  await select(numbers[next], current >= 0); // stepping from test to test adds one entry to the history, not one per test
  focusHeading();
}

function nextFinding(step) {
  const findings = shownParts.findings;
  if (!findings.length) return;
  const next = findings[Math.min(Math.max(shownParts.at + step, 0), findings.length - 1)];
  next.choose(true);
  next.button.focus();
}

function escape() {
  if (isTextField(document.activeElement)) document.activeElement.blur();
  else for (const view of views) if (view.clear && view.clear()) return;
}

const ACTIONS = {
  j: () => nextTest(1),
  k: () => nextTest(-1),
  f: () => nextTest(1, (test) => RED.includes(test.outcome)),
  n: () => nextFinding(1),
  p: () => nextFinding(-1),
  c: () => { if (causesHeading) { showCauses(); focusHeading(); } },
  a: () => { if (audit) { showAudit(); focusHeading(); } },
  t: () => {
    const button = document.querySelector('nav [aria-current="true"]') || document.querySelector("nav button");
    if (button) button.focus();
  },
  b: () => { const button = document.querySelector('.picture .switch button[aria-pressed="false"]'); if (button) button.click(); },
  "/": () => search.focus(),
  "?": () => help.showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.key === "Escape") escape();
  else if (!isTextField(event.target) && Object.hasOwn(ACTIONS, event.key)) {
    event.preventDefault();
    ACTIONS[event.key]();
  }
});
