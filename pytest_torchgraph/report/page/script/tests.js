// The test list with its search, its filters and its selection.

const shown = new Set(OUTCOMES); // outcomes that the list shows
let words = []; // words of the search, in lower case
let current = -1; // number of the selected test, -1 for a view of the whole run
let views = []; // pictures and outlines of the current view
let shownParts = noParts(); // targets of addresses in the current view

// Returns the list's filters as parts of an address.
function filters() {
  const hidden = OUTCOMES.filter((outcome) => !shown.has(outcome));
  return { search: words.length ? words.join(" ") : null, hide: hidden.length ? hidden.join(",") : null };
}

function matching() {
  return tests.filter((test) =>
    shown.has(test.outcome) && words.every((word) => searched[test.number].includes(word)));
}

function outcome(test) {
  return element("span", { class: `outcome ${test.outcome}` }, test.outcome);
}

function title(test) {
  return [outcome(test), " ", name(test.id)];
}

function badges(test) {
  const { findings, breaks, recompiles, disagree } = test.facts;
  const counts = [];
  if (findings) counts.push(plural(findings, "finding"));
  if (breaks) counts.push(plural(breaks, "break"));
  if (disagree) counts.push("ranks disagree");
  if (recompiles) counts.push(plural(recompiles, "recompile"));
  return counts.map((text) => element("span", { class: "badge" }, text));
}

const ROW_PX = 46; // height of a row of the list
const listed = { tests: [], rows: null }; // tests that match the filters, and the virtual list

function listRow(index) {
  const test = listed.tests[index];
  return element("li", { "aria-setsize": listed.tests.length, "aria-posinset": index + 1 }, element("button", {
    "data-test": test.number, title: test.id,
    "aria-current": test.number === current ? "true" : null,
    onclick: () => select(test.number),
    onkeydown: (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !listed.tests[index + step]) return;
      event.preventDefault();
      listed.rows.show(index + step, true);
    },
  }, element("span", { class: "name" }, name(test.id)), element("span", { class: "about" }, outcome(test), badges(test))));
}

// Updates the list to the filters. The first call builds the list.
function list() {
  if (!listed.rows) {
    const body = element("ol");
    const scroller = element("div", { class: "scroll" }, body);
    document.querySelector("nav").append(
      ...(overviews.length ? [element("div", { class: "views" }, overviews)] : []),
      scroller, element("p", { class: "none", hidden: "" }));
    listed.rows = virtualRows({ scroller, body, height: ROW_PX, make: listRow });
  }
  listed.tests = matching();
  const none = document.querySelector("nav .none");
  none.hidden = listed.tests.length > 0;
  none.textContent = tests.length ? "No test matches." : "No test used graphs.";
  listed.rows.resize(listed.tests.length);
  document.getElementById("count").textContent = `${listed.tests.length} of ${plural(tests.length, "test")}`;
}

// Marks the current view in the list: a test, or -1 for a view of the whole run.
function mark(number) {
  current = number;
  for (const button of document.querySelectorAll("nav [aria-current]")) button.removeAttribute("aria-current");
  const index = listed.tests.findIndex((test) => test.number === number);
  if (index >= 0) listed.rows.show(index);
  const button = document.querySelector(`nav [data-test="${number}"]`);
  if (button) button.setAttribute("aria-current", "true");
}

let loading = Promise.resolve(); // settles when the last selected test is shown

// Shows a test once its details are read, unless the user selects another view first.
function select(number, replace = false) {
  loading = load(number, replace);
  return loading;
}

async function load(number, replace) {
  mark(number);
  linkTo({ test: tests[number].id }, replace);
  const main = document.querySelector("main");
  main.setAttribute("aria-busy", "true");
  views = [];
  shownParts = noParts();
  main.replaceChildren(element("h2", {}, ...title(tests[number])));
  let test;
  try {
    test = await details(tests[number]);
  } catch (error) {
    test = null;
    if (current === number) {
      main.append(element("p", { class: "card missing", role: "alert" },
        `The details of this test cannot be read: ${error.message}`));
    }
  }
  if (current === number) main.removeAttribute("aria-busy");
  if (!test || current !== number) return;
  main.replaceChildren(...detail(test));
  main.scrollTop = 0;
  for (const view of views) if (view.start) view.start();
}

function testButton(id) {
  const test = numbered(id);
  return element("li", {}, test ? element("button", { onclick: () => select(test.number) }, name(id)) : name(id));
}
