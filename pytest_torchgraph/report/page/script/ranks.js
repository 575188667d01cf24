// What is sent between ranks: collectives in order, each in the lane of its group, and several ranks of
// one model as one test.

// -- collectives ----------------------------------------------------------------------------------

// What is said of each beside its lane; a column in which nothing would stand is left out.
const ABOUT_SENT = [
  ["tensor", (row) => element("td", { class: "tensor" }, name(row.tensor))],
  ["wait", (row) => element("td", { class: row.exposed ? "exposed" : null }, row.wait)],
  ["module", (row) => element("td", {}, name(row.module))],
  ["line", (row) => element("td", { title: row.code || null }, name(row.line))],
];

function collectives(each, open) {
  const columns = ABOUT_SENT.filter(([key]) => each.rows.some((row) => row[key]));
  const several = new Set(each.rows.map((row) => row.graph)).size > 1;
  const width = 1 + each.groups.length + columns.length;
  const rows = each.rows.flatMap((row, number) => [
    several && (!number || row.graph !== each.rows[number - 1].graph) ? element("tr", { class: "graph" },
      element("th", { colspan: width, scope: "rowgroup" }, name(row.graph))) : null,
    element("tr", {},
      element("td", { class: "number" }, String(number)),
      each.groups.map((group) => element("td", { class: "lane" }, group === row.group ? sent(row) : "")),
      columns.map(([, cell]) => cell(row))),
  ]);
  const lanes = each.groups.map((group) => element("th", { scope: "col", class: "lane" }, name(group || "?")));
  return element("details", { class: "collectives", open: open ? "" : null },
    element("summary", {}, name(each.about)),
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "number" }, "#"), lanes,
        columns.map(([key]) => element("th", { scope: "col", class: key }, key)))),
      element("tbody", {}, rows))),
    each.more ? element("p", { class: "note" }, `${plural(each.more, "collective")} more`) : null);
}

function sent(row) {
  return element("span", { class: "sent" }, name(row.kind), element("small", {}, ` ${row.bytes} B`));
}

// -- ranks ----------------------------------------------------------------------------------------

function ranks(each) {
  if (each.note) return [element("h3", {}, "Ranks"), element("p", { class: "note" }, name(each.note))];
  const alone = each.classes.length === 1;
  const all = each.captured === each.world ? "all of them" : `${each.captured} of them`;
  const alike = each.captured === 1 ? "" : alone ? ", with equal graphs"
    : `, in ${each.count} classes of ranks with equal graphs`;
  return [
    element("h3", {}, "Ranks of ", name(each.mesh)),
    element("p", {}, `${plural(each.world, "rank")}; captured: ${all}${alike}.`),
    alone ? null : grid(each.grid),
    each.problems.length ? problems(each) : null,
    ...each.classes.filter((one) => one.order && one.order.danger).map((one) => disagreement(each.classes[0], one)),
    ...each.classes.flatMap((one, number) => capture(one.capture, [
      ...(alone ? [] : [letter(one.name), " "]), name(one.ranks), " via ", name(one.capture.via)],
    !number || one.order)), // what a class sends is closed where it is what the first one sends
    each.count > each.classes.length
      ? element("p", { class: "note" }, `${each.count - each.classes.length} classes more`) : null,
  ].filter((part) => part !== null);
}

function letter(text) {
  return element("span", { class: `letter letter-${text}` }, text);
}

// The mesh, each captured rank with the letter of its class.
function grid(each) {
  if (!each) return null;
  const about = each.down ? `down: ${each.down}; across: ${each.across}` : `across: ${each.across}`;
  return element("div", { class: "wide" }, element("table", { class: "mesh" },
    element("caption", {}, name(about)),
    element("tbody", {}, each.rows.map((row) => element("tr", {}, row.map(([rank, text]) =>
      element("td", { class: text ? null : "other" }, `${rank} `, text ? letter(text) : null)))))));
}

// Which ranks wait for ever, in what and for whom, and what is sent and not received.
function problems(each) {
  return element("div", { class: "card orders" },
    element("strong", {}, each.waiting ? `Deadlock of ${plural(each.waiting, "rank")}.`
      : "Collectives of the ranks do not match."),
    element("pre", {}, each.problems.join("\n")));
}

// The orders of two classes side by side, around the first collective that differs.
function disagreement(first, other) {
  const { waits, danger, same_order, words, start, rows, more } = other.order;
  const side = (text, number) => element("td", { class: number === start ? "first" : null },
    number === start ? element("strong", {}, "✗ ") : null, name(text));
  return element("div", { class: "card orders" },
    element("strong", {}, same_order ? "Different data: " : waits ? "Deadlock: " : "Different order: "), letter(first.name), " ", name(first.ranks), " and ",
    letter(other.name), " ", name(other.ranks), ` ${words}, ${danger}. The first difference is at collective ${start}.`,
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "number" }, "#"),
        [first, other].map((each) => element("th", { scope: "col" }, letter(each.name), " ", name(each.ranks))))),
      element("tbody", {}, rows.map(([number, one, two]) => element("tr", { class: one === two ? "same" : null },
        element("td", { class: "number" }, String(number)), side(one, number), side(two, number)))))),
    more ? element("p", { class: "note" }, `${plural(more, "collective")} more`) : null);
}
