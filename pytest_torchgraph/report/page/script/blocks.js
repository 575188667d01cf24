// Returns the kinds of blocks in a list of modules. Blocks of one kind compute the same in the forward.
function blocks(list) {
  return element("details", { class: "blocks" },
    element("summary", {}, "Blocks ", name(list.glob), `: ${plural(list.count, "kind")}`),
    element("div", { class: "wide" }, element("table", {}, element("tbody", {}, list.kinds.map(([count, members]) =>
      element("tr", {}, element("td", { class: "number" }, thousands(count)), element("td", {}, name(members))))))),
    list.count > list.kinds.length
      ? element("p", { class: "note" }, `${plural(list.count - list.kinds.length, "kind")} more`) : null);
}
