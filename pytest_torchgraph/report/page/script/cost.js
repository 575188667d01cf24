// What modules cost, each with all below it; of a comparison those that cost another amount than before.
function cost(each, title) {
  if (!each) return null;
  const cell = (value) => element("td", { class: "number" }, thousands(value));
  return element("details", { class: "cost" },
    element("summary", {}, `${title}: ${each.about}`),
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, ["module", ...each.titles].map((text, number) =>
        element("th", { scope: "col", class: number ? "number" : null }, text)))),
      element("tbody", {}, each.rows.map(([module, nesting, ...figures]) => element("tr", {},
        element("th", { scope: "row", style: `padding-inline-start: ${nesting + 0.5}rem` },
          module ? name(module) : "all"), figures.map(cell)))))),
    each.more ? element("p", { class: "note" }, `${plural(each.more, "module")} more`) : null,
    each.note ? element("p", { class: "note" }, name(each.note)) : null);
}
