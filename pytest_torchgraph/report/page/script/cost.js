// Returns the table of module costs, each including its submodules.
function cost(table) {
  const cell = (value) => element("td", { class: "number" }, thousands(value));
  return element("details", { class: "cost" },
    element("summary", {}, `Cost: ${table.about}`),
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, ["module", ...table.titles].map((text, number) =>
        element("th", { scope: "col", class: number ? "number" : null }, text)))),
      element("tbody", {}, table.rows.map(([module, nesting, ...figures]) => element("tr", {},
        element("th", { scope: "row", style: `padding-inline-start: ${nesting + 0.5}rem` },
          module ? name(module) : "all"), figures.map(cell)))))),
    table.more ? element("p", { class: "note" }, `${plural(table.more, "module")} more`) : null,
    table.note ? element("p", { class: "note" }, name(table.note)) : null);
}
