// The data of the run. What the list of tests needs is here from the start; the details of a test are a part
// of the page, compressed, which is read when somebody looks at them: `await details(test)`. A part can name
// further ones by their digests: `await part(digest)`.

const data = JSON.parse(document.getElementById("data").textContent);
const tests = data.tests;
const causes = data.causes;
const audit = data.audit;
const failures = data.failures || []; // what failed but for comparisons
const OUTCOMES = ["failed", "error", "crashed", "xpassed", "passed", "xfailed", "skipped"];
const RED = ["failed", "error", "crashed"];

tests.forEach((test, number) => { test.number = number; });

const byId = new Map(tests.map((test) => [test.id, test]));

function numbered(id) {
  return byId.get(id);
}

const partTexts = new Map([...document.querySelectorAll("script[data-part]")].map((each) => [each.dataset.part, each]));
const KEPT_PARTS = 40; // parts that stay in memory, those that were read last
const read = new Map();

// The data of a part, each time the same object while it stays in memory.
function part(digest) {
  const found = read.get(digest) || unpacked(digest);
  read.delete(digest);
  read.set(digest, found);
  if (read.size > KEPT_PARTS) read.delete(read.keys().next().value);
  return found;
}

async function unpacked(digest) {
  const holder = partTexts.get(digest);
  if (!holder) throw new Error(`part ${digest} of the page is missing`);
  const bytes = Uint8Array.from(atob(holder.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// A test with its message, captures, ranks, differences and pictures.
async function details(test) {
  return { ...test, ...(await part(test.part)) };
}

// What the search looks into, a text for each test: their ids until the part with all else is read.
let searched = tests.map((test) => test.id.toLowerCase());
const searchable = data.search ? part(data.search).then((texts) => { searched = texts; }) : Promise.resolve();
