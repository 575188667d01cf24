// What is shown first, the head of the page, and the keys.

const chips = OUTCOMES.filter((outcome) => tests.some((test) => test.outcome === outcome)).map((outcome) => {
  const count = tests.filter((test) => test.outcome === outcome).length;
  const chip = element("button", { "aria-pressed": "true", onclick: () => {
    if (!shown.delete(outcome)) shown.add(outcome);
    chip.setAttribute("aria-pressed", String(shown.has(outcome)));
    list();
  } }, element("span", { class: outcome }, `${count} ${outcome}`));
  return chip;
});
const search = element("input", { type: "search", "aria-label": "search the tests",
  placeholder: "test, op, module, break, finding", oninput: () => {
    words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    list();
  } });
document.querySelector("header").append(element("h1", {}, "torchgraph"), search, ...chips,
  element("span", { id: "count", role: "status" }), element("span", { class: "about" }, data.about));
if (data.warning) {
  document.querySelector("header").append(element("strong", { class: "failed" }, data.warning));
}
document.addEventListener("keydown", (event) => {
  if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
  const numbers = matching().map((test) => test.number);
  const place = numbers.indexOf(current);
  if (event.key === "/") { event.preventDefault(); search.focus(); }
  else if (event.key === "j" && numbers.length) select(numbers[Math.min(place + 1, numbers.length - 1)]);
  else if (event.key === "k" && numbers.length) select(numbers[Math.max(place - 1, 0)]);
});
// Where tests have nothing to show, what the suite compiles has the page for itself.
if (audit && !tests.length && overviews.length === 1) document.body.className = "alone";
list();
const wanted = Number.parseInt(location.hash.slice(1), 10);
const first = matching().findIndex((test) => ["failed", "error", "crashed"].includes(test.outcome));
if (tests[wanted]) select(wanted);
else if (causes && (!audit || location.hash === "#causes")) showCauses();
else if (audit) showAudit();
else if (tests.length) select(matching()[Math.max(first, 0)].number);
