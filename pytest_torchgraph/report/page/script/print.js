// The run on paper: the causes, then what failed, with findings, message and the whole picture; nothing to click.

const PRINTED = 50; // tests that are printed, the first ones that failed
const MESSAGE_LINES = 60; // of a message, the last ones: pytest says there what is wrong

// False where somebody has chosen something else before it was there.
async function showPrint() {
  const failed = tests.filter((test) => RED.includes(test.outcome));
  const heading = element("h2", {}, causesHeading || plural(failed.length, "failed test"));
  overview(null, "print", heading, element("p", { class: "note" }, "loading the failed tests"));
  const parts = [heading,
    element("p", { class: "where" }, `${data.about} · ${plural(tests.length, "test")}, ${failed.length} failed`)];
  parts.push(...causesView());
  for (const test of failed.slice(0, PRINTED)) parts.push(printed(await details(test)));
  if (failed.length > PRINTED) parts.push(element("p", { class: "note" }, `${failed.length - PRINTED} more tests failed`));
  if (!failed.length) parts.push(element("p", {}, "No test failed."));
  const main = document.querySelector("main");
  if (!main.contains(heading)) return false;
  main.replaceChildren(element("div", { class: "paper" }, parts));
  for (const box of main.querySelectorAll("details")) {
    box.open = true;
    if (box.fill) box.fill(); // now: the browser opens it later
  }
  return true;
}

function printed(test) {
  const drawn = [...test.differences, ...test.pictures];
  const message = test.message.split("\n");
  return element("section", { class: "printed" },
    element("h2", {}, ...title(test)),
    element("p", { class: "where" }, name(test.where)),
    ...drawn.flatMap((each) => [
      element("h3", {}, each.title ? name(each.title) : ["Difference from ", name(each.file)]),
      each.ranks ? element("p", {}, name(each.ranks)) : null,
      each.headline ? element("p", {}, name(each.headline)) : null,
      each.findings.length ? element("ul", { class: "findings" }, each.findings.map((one) => element("li", {},
        element("span", { class: "sign" }, one.sign), name(one.summary),
        linesOf(one)))) : null,
      each.accept ? element("p", {}, "Accept: ", element("code", {}, name(each.accept))) : null,
      printedPicture(each),
    ]),
    ...(test.message ? [element("h3", {}, "Message"),
      message.length > MESSAGE_LINES ? element("p", { class: "note" }, `the last ${MESSAGE_LINES} of ${message.length} lines`) : null,
      element("pre", {}, message.slice(-MESSAGE_LINES).join("\n"))] : []));
}

function printedPicture(each) {
  const svg = each.svg ? parsed(each.svg) : null;
  if (!svg) return each.note ? element("p", { class: "note" }, each.note) : null;
  const [, , width, height] = whole(svg);
  const box = element("div", { class: "drawn", style: `aspect-ratio: ${width} / ${height}; max-width: ${width}pt` });
  const style = element("style", {}, PICTURE_STYLE);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  box.attachShadow({ mode: "open" }).append(style, svg);
  return box;
}

// The browser's own dialog follows when all is there.
const printButton = element("button", { onclick: async () => { if (await showPrint()) window.print(); } }, "print");
