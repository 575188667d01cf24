// What is shown first, and the head of the page.

const counted = OUTCOMES.map((outcome) => [outcome, tests.filter((test) => test.outcome === outcome).length])
  .filter(([, count]) => count);
const chips = counted.map(([outcome, count]) => element("button", { "data-outcome": outcome, onclick: () => {
  if (!shown.delete(outcome)) shown.add(outcome);
  refiltered();
} }, element("span", { class: outcome }, `${count} ${outcome}`)));
const search = element("input", { type: "search", "aria-label": "search the tests",
  placeholder: "test, op, module, break, finding", oninput: () => {
    words = wordsOf(search.value);
    refiltered();
  } });

function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

function pressed() {
  for (const chip of chips) chip.setAttribute("aria-pressed", String(shown.has(chip.dataset.outcome)));
}

// The list after somebody has changed what it leaves out; the address says so without a step to go back to.
function refiltered() {
  pressed();
  list();
  linkTo(place, true);
}

// The list as an address wants it.
function filter(sought, hidden) {
  const same = wordsOf(sought).join(" ") === words.join(" ")
    && OUTCOMES.every((outcome) => shown.has(outcome) !== hidden.includes(outcome));
  if (same) return;
  search.value = sought;
  words = wordsOf(sought);
  for (const outcome of OUTCOMES) {
    if (hidden.includes(outcome)) shown.delete(outcome);
    else shown.add(outcome);
  }
  pressed();
  list();
}
document.querySelector("header").append(element("h1", {}, "torchgraph"), search, ...chips,
  element("span", { id: "count", role: "status" }), element("span", { class: "about", title: data.about }, data.about), printButton,
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

pressed();
list();
searchable.then(() => { if (words.length) list(); });
follow(location.hash).then((found) => (found ? null : opening())).then(() => { document.body.dataset.ready = ""; });
