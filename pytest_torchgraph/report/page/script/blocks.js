// Kinds of blocks in a list of modules: those of one kind compute the same in the forward.
function blocks(each) {
  return element("details", { class: "blocks" },
    element("summary", {}, "Blocks ", name(each.glob), `: ${plural(each.count, "kind")}`),
    element("div", { class: "wide" }, element("table", {}, element("tbody", {}, each.kinds.map(([count, members]) =>
      element("tr", {}, element("td", { class: "number" }, thousands(count)), element("td", {}, name(members))))))),
    each.count > each.kinds.length
      ? element("p", { class: "note" }, `${plural(each.count - each.kinds.length, "kind")} more`) : null);
}
