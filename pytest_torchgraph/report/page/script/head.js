// The head of the page, and the view that the page opens with.

const outcomeCounts = OUTCOMES.map((outcome) => [outcome, tests.filter((test) => test.outcome === outcome).length])
  .filter(([, count]) => count);
const chips = outcomeCounts.map(([outcome, count]) => element("button", { "data-outcome": outcome, onclick: () => {
  if (!shown.delete(outcome)) shown.add(outcome);
  filtersChanged();
} }, element("span", { class: outcome }, `${count} ${outcome}`)));
const search = element("input", { type: "search", "aria-label": "search the tests",
  placeholder: "test, op, module, break, finding", oninput: () => {
    words = wordsOf(search.value);
    filtersChanged();
  } });

function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

function updateChips() {
  for (const chip of chips) chip.setAttribute("aria-pressed", String(shown.has(chip.dataset.outcome)));
}

// Updates the list and the address after a change of the filters. Each typed letter is a change, so none gets an entry in
// the browser's history.
function filtersChanged() {
  updateChips();
  list();
  linkTo(place, true);
}

// Sets the filters to those of an address.
function filter(query, hidden) {
  const same = wordsOf(query).join(" ") === words.join(" ")
    && OUTCOMES.every((outcome) => shown.has(outcome) !== hidden.includes(outcome));
  if (same) return;
  search.value = query;
  words = wordsOf(query);
  for (const outcome of OUTCOMES) {
    if (hidden.includes(outcome)) shown.delete(outcome);
    else shown.add(outcome);
  }
  updateChips();
  list();
}
document.querySelector("header").append(element("h1", {}, "torchgraph"), search, ...chips,
  element("span", { id: "count", role: "status" }), element("span", { class: "about", title: data.about }, data.about), printButton,
  element("button", { onclick: ACTIONS["?"], "aria-label": "keys" }, "?"));
if (data.warning) {
  document.querySelector("header").append(element("strong", { class: "failed" }, data.warning));
}
// Without tests to list, the audit or the causes fill the page.
if (!tests.length && overviews.length === 1) document.body.className = "alone";
// Shows the opening view: the causes, else the audit, else the first failed test.
async function showOpening() {
  const firstFailed = matching().findIndex((test) => RED.includes(test.outcome));
  if (causesHeading) showCauses();
  else if (audit) showAudit();
  else if (tests.length) await select(matching()[Math.max(firstFailed, 0)].number, true);
}

updateChips();
list();
searchable.then(() => { if (words.length) list(); });
follow(location.hash).then((followed) => (followed ? null : showOpening())).then(() => { document.body.dataset.ready = ""; });
