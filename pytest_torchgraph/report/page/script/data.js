// The data of the run, and what several views read of a test.

const data = JSON.parse(document.getElementById("data").textContent);
const tests = data.tests;
const causes = data.causes;
const audit = data.audit;
const OUTCOMES = ["failed", "error", "crashed", "xpassed", "passed", "xfailed", "skipped"];

tests.forEach((test, number) => { test.number = number; });

const byId = new Map(tests.map((test) => [test.id, test]));

function numbered(id) {
  return byId.get(id);
}

// The captures of a test, and one for each class of equal ranks.
function capturesOf(test) {
  return [...test.captures, ...test.ranks.flatMap((each) => each.classes.map((one) => one.capture))];
}
