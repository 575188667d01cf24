// Long lists: only the rows that can be seen, and some beside them, are in the document.

const BESIDE = 12; // rows beside those that are seen, on each side

// Rows of one height in `body`, which alone is in `scroller`, an element that scrolls. `make(index)` gives the element of a row, at whose
// place it is put. `resize(count)` makes all of them anew; `show(index)` scrolls to one; `refresh()` makes
// those that are there anew; `row(index)` is the element of one that is there. A row that has the focus stays.
function virtualRows({ scroller, body, height, make }) {
  let count = 0;
  let made = new Map();
  const fill = () => {
    const start = scroller.scrollTop;
    const first = Math.max(0, Math.floor(start / height) - BESIDE);
    const last = Math.min(count, Math.ceil((start + scroller.clientHeight) / height) + BESIDE);
    for (const [index, row] of made) {
      if ((index < first || index >= last) && !row.contains(document.activeElement)) {
        row.remove();
        made.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (made.has(index)) continue;
      const row = make(index);
      row.style.top = `${index * height}px`;
      row.style.height = `${height}px`;
      made.set(index, row);
      body.append(row);
    }
    ordered();
  };
  // In the document in their order, for those who do not see them.
  const ordered = () => {
    let before = null;
    for (const [, row] of [...made].sort(([a], [b]) => a - b)) {
      if (before ? before.nextSibling !== row : body.firstChild !== row) {
        if (row.contains(document.activeElement)) { before = row; continue; }
        body.insertBefore(row, before ? before.nextSibling : body.firstChild);
      }
      before = row;
    }
  };
  const resize = (next) => {
    count = next;
    body.style.height = `${count * height}px`;
    refresh();
  };
  const refresh = () => {
    const focused = [...made].find(([, row]) => row.contains(document.activeElement));
    for (const row of made.values()) row.remove();
    made = new Map();
    fill();
    if (focused && made.has(focused[0])) focusRow(focused[0]);
  };
  const focusRow = (index) => {
    const row = made.get(index);
    if (row) (row.tabIndex >= 0 ? row : row.querySelector("button") || row).focus({ preventScroll: true });
  };
  const show = (index, focus = false) => {
    const [from, to] = [index * height, (index + 1) * height];
    if (from < scroller.scrollTop) scroller.scrollTop = from;
    else if (to > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = to - scroller.clientHeight;
    fill();
    if (focus) focusRow(index);
  };
  scroller.addEventListener("scroll", fill, { passive: true });
  new ResizeObserver(fill).observe(scroller);
  body.classList.add("rows");
  return { resize, refresh, show, fill, row: (index) => made.get(index) || null };
}
