// Print view: the causes, then the failed tests with findings, message and whole picture, without controls.

const PRINTED = 50; // maximum number of printed tests, the first failed ones
const MESSAGE_LINES = 60; // lines printed of a message, the last ones: there pytest says what is wrong

// Shows the print view. Returns false if the user selected another view before the failed tests were read.
async function showPrint() {
  const failed = tests.filter((test) => RED.includes(test.outcome));
  const heading = element("h2", {}, causesHeading || plural(failed.length, "failed test"));
  overview(null, "print", heading, element("p", { class: "note" }, "loading the failed tests"));
  const parts = [heading,
    element("p", { class: "where" }, [data.about,
      ...(tests.length ? [`${plural(tests.length, "test")}, ${failed.length} failed`] : [])].join(" · "))];
  parts.push(...causesView());
  for (const test of failed.slice(0, PRINTED)) parts.push(printed(await details(test)));
  if (failed.length > PRINTED) parts.push(element("p", { class: "note" }, `${failed.length - PRINTED} more tests failed`));
  if (tests.length && !failed.length) parts.push(element("p", {}, "No test failed."));
  const main = document.querySelector("main");
  if (!main.contains(heading)) return false;
  main.replaceChildren(element("div", { class: "paper" }, parts));
  for (const box of main.querySelectorAll("details")) {
    box.open = true;
    if (box.fill) box.fill(); // fill it now: the toggle event, which fills it as well, comes later
  }
  return true;
}

function printed(test) {
  const entries = [...test.differences, ...test.pictures];
  const message = test.message.split("\n");
  return element("section", { class: "printed" },
    element("h2", {}, ...title(test)),
    element("p", { class: "where" }, name(test.where)),
    ...entries.flatMap((entry) => [
      element("h3", {}, entry.title ? name(entry.title) : ["Difference from ", name(entry.file)]),
      entry.ranks ? element("p", {}, name(entry.ranks)) : null,
      entry.headline ? element("p", {}, name(entry.headline)) : null,
      entry.findings.length ? element("ul", { class: "findings" }, entry.findings.map((finding) => element("li", {},
        element("span", { class: "sign" }, finding.sign), name(finding.summary),
        linesOf(finding)))) : null,
      entry.accept ? element("p", {}, "Accept: ", element("code", {}, name(entry.accept))) : null,
      printedPicture(entry),
    ]),
    ...(test.message ? [element("h3", {}, "Message"),
      message.length > MESSAGE_LINES ? element("p", { class: "note" }, `the last ${MESSAGE_LINES} of ${message.length} lines`) : null,
      element("pre", {}, message.slice(-MESSAGE_LINES).join("\n"))] : []));
}

function printedPicture(entry) {
  const svg = entry.svg ? parseSvg(entry.svg) : null;
  if (!svg) return entry.note ? element("p", { class: "note" }, entry.note) : null;
  const [, , width, height] = viewBoxOf(svg);
  const box = element("div", { class: "drawn", style: `aspect-ratio: ${width} / ${height}; max-width: ${width}pt` });
  const style = element("style", {}, PICTURE_STYLE);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  box.attachShadow({ mode: "open" }).append(style, svg);
  return box;
}

// Opens the browser's print dialog once the print view is complete.
const printButton = element("button", { onclick: async () => { if (await showPrint()) window.print(); } }, "print");
