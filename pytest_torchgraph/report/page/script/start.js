// What is shown first, and the head of the page.

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
  element("span", { id: "count", role: "status" }), element("span", { class: "about" }, data.about), printButton,
  element("button", { onclick: ACTIONS["?"], "aria-label": "keys" }, "?"));
if (data.warning) {
  document.querySelector("header").append(element("strong", { class: "failed" }, data.warning));
}
// Where tests have nothing to show, what the suite compiles has the page for itself.
if (audit && !tests.length && overviews.length === 1) document.body.className = "alone";
// What is shown where no address names anything.
async function opening() {
  const first = matching().findIndex((test) => RED.includes(test.outcome));
  if (causesHeading) showCauses();
  else if (audit) showAudit();
  else if (tests.length) await select(matching()[Math.max(first, 0)].number, true);
}

list();
searchable.then(() => { if (words.length) list(); });
follow(location.hash).then((found) => (found ? null : opening())).then(() => { document.body.dataset.ready = ""; });
