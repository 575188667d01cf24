// Communication between ranks: collectives in order, each in the lane of its process group, and the ranks of a mesh
// grouped into classes with equal graphs.

// -- collectives ----------------------------------------------------------------------------------

// Columns to the right of the lanes. Empty columns are left out.
const ABOUT_SENT = [
  ["tensor", (row) => element("td", { class: "tensor" }, name(row.tensor))],
  ["wait", (row) => element("td", { class: row.exposed ? "exposed" : null }, row.wait)],
  ["module", (row) => element("td", {}, name(row.module))],
  ["line", (row) => element("td", { title: row.code || null }, name(row.line))],
];

function collectives(list, open) {
  const columns = ABOUT_SENT.filter(([key]) => list.rows.some((row) => row[key]));
  const hasSeveralGraphs = new Set(list.rows.map((row) => row.graph)).size > 1;
  const width = 1 + list.groups.length + columns.length;
  const rows = list.rows.flatMap((row, number) => [
    hasSeveralGraphs && (!number || row.graph !== list.rows[number - 1].graph) ? element("tr", { class: "graph" },
      element("th", { colspan: width, scope: "rowgroup" }, name(row.graph))) : null,
    element("tr", {},
      element("td", { class: "number" }, String(number)),
      list.groups.map((group) => element("td", { class: "lane" }, group === row.group ? sent(row) : "")),
      columns.map(([, makeCell]) => makeCell(row))),
  ]);
  const lanes = list.groups.map((group) => element("th", { scope: "col", class: "lane" }, name(group || "?")));
  return element("details", { class: "collectives", open: open ? "" : null },
    element("summary", {}, name(list.about)),
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "number" }, "#"), lanes,
        columns.map(([key]) => element("th", { scope: "col", class: key }, key)))),
      element("tbody", {}, rows))),
    list.more ? element("p", { class: "note" }, `${plural(list.more, "collective")} more`) : null);
}

function sent(row) {
  return element("span", { class: "sent" }, name(row.kind), element("small", {}, ` ${row.bytes} B`));
}

// -- ranks ----------------------------------------------------------------------------------------

function ranks(launch) {
  if (launch.note) return [element("h3", {}, "Ranks"), element("p", { class: "note" }, name(launch.note))];
  const isOneClass = launch.classes.length === 1;
  const capturedText = launch.captured === launch.world ? "all of them" : `${launch.captured} of them`;
  const classesText = launch.captured === 1 ? "" : isOneClass ? ", with equal graphs"
    : `, in ${launch.count} classes of ranks with equal graphs`;
  return [
    element("h3", {}, "Ranks of ", name(launch.mesh)),
    element("p", {}, `${plural(launch.world, "rank")}; captured: ${capturedText}${classesText}.`),
    isOneClass ? null : grid(launch.grid),
    launch.problems.length ? problems(launch) : null,
    ...launch.classes.filter((rankClass) => rankClass.order && rankClass.order.danger)
      .map((rankClass) => disagreement(launch.classes[0], rankClass)),
    ...launch.classes.flatMap((rankClass, number) => capture(rankClass.capture, [
      ...(isOneClass ? [] : [letter(rankClass.name), " "]), name(rankClass.ranks), " via ", name(rankClass.capture.via)],
    !number || rankClass.order)), // fold the collectives of a class that agrees with the first class
    launch.count > launch.classes.length
      ? element("p", { class: "note" }, `${launch.count - launch.classes.length} classes more`) : null,
  ].filter((part) => part !== null);
}

function letter(text) {
  return element("span", { class: `letter letter-${text}` }, text);
}

// Returns the mesh as a table, each captured rank with the letter of its class.
function grid(mesh) {
  if (!mesh) return null;
  const about = mesh.down ? `down: ${mesh.down}; across: ${mesh.across}` : `across: ${mesh.across}`;
  return element("div", { class: "wide" }, element("table", { class: "mesh" },
    element("caption", {}, name(about)),
    element("tbody", {}, mesh.rows.map((row) => element("tr", {}, row.map(([rank, text]) =>
      element("td", { class: text ? null : "other" }, `${rank} `, text ? letter(text) : null)))))));
}

// Returns the deadlocked ranks, with what each waits for, and the unmatched sends.
function problems(launch) {
  return element("div", { class: "card orders" },
    element("strong", {}, launch.waiting ? `Deadlock of ${plural(launch.waiting, "rank")}.`
      : "Collectives of the ranks do not match."),
    element("pre", {}, launch.problems.join("\n")));
}

// Returns the collectives of two classes side by side, around the first that differs.
function disagreement(first, other) {
  const { waits, danger, same_order, words, start, rows, more } = other.order;
  const side = (text, number) => element("td", { class: number === start ? "first" : null },
    number === start ? element("strong", {}, "✗ ") : null, name(text));
  return element("div", { class: "card orders" },
    element("strong", {}, same_order ? "Different data: " : waits ? "Deadlock: " : "Different collectives: "), letter(first.name), " ", name(first.ranks), " and ",
    letter(other.name), " ", name(other.ranks), ` ${words}, ${danger}. The first difference is at collective ${start}.`,
    element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "number" }, "#"),
        [first, other].map((rankClass) => element("th", { scope: "col" }, letter(rankClass.name), " ", name(rankClass.ranks))))),
      element("tbody", {}, rows.map(([number, left, right]) => element("tr", { class: left === right ? "same" : null },
        element("td", { class: "number" }, String(number)), side(left, number), side(right, number)))))),
    more ? element("p", { class: "note" }, `${plural(more, "collective")} more`) : null);
}
