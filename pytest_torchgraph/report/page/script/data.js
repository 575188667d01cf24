// Data of the run. The data of the test list are parsed on load. The details of a test are in a compressed part of the
// page and are read on demand: `await details(test)`. Parts refer to other parts by digest: `await part(digest)`.

const data = JSON.parse(document.getElementById("data").textContent);
const tests = data.tests;
const causes = data.causes;
const audit = data.audit;
const failures = data.failures || []; // failures other than failed comparisons
const OUTCOMES = ["failed", "error", "crashed", "xpassed", "passed", "xfailed", "skipped"];
const RED = ["failed", "error", "crashed"];

tests.forEach((test, number) => { test.number = number; });

const byId = new Map(tests.map((test) => [test.id, test]));

function numbered(id) {
  return byId.get(id);
}

const partTexts = new Map([...document.querySelectorAll("script[data-part]")].map((holder) => [holder.dataset.part, holder]));
const KEPT_PARTS = 40; // size of the cache of parts, least recently used first out
const read = new Map();

// Returns a promise of a part's data. Calls with the same digest return the same promise while it is in the cache.
function part(digest) {
  const promise = read.get(digest) || unpack(digest);
  read.delete(digest); // to insert it again as the newest: a Map keeps insertion order
  read.set(digest, promise);
  if (read.size > KEPT_PARTS) read.delete(read.keys().next().value);
  return promise;
}

async function unpack(digest) {
  const script = partTexts.get(digest);
  if (!script) throw new Error(`part ${digest} of the page is missing`);
  const bytes = Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// Returns a test with its message, captures, ranks, differences and pictures.
async function details(test) {
  return { ...test, ...(await part(test.part)) };
}

// Search text of each test, by number: only its id until the part with the full texts is read.
let searched = tests.map((test) => test.id.toLowerCase());
const searchable = data.search ? part(data.search).then((texts) => { searched = texts; }) : Promise.resolve();
