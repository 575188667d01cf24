// Virtual lists: the document holds only the visible rows and a few rows above and below.

const BESIDE = 12; // rows kept above and below the visible ones

// Returns a virtual list of rows with equal heights.
//
//   scroller        the element that scrolls; `body` is its only child
//   make(index)     returns the element of a row
//
// The list has these functions:
//
//   resize(count)   sets the number of rows and rebuilds the rows in the document
//   refresh()       rebuilds the rows in the document
//   show(index)     scrolls to a row, and focuses it if the second argument is true
//   row(index)      returns a row's element, or null if the row is not in the document
//
// A row with the focus stays in the document wherever the list is scrolled: removing it would lose the focus.
function virtualRows({ scroller, body, height, make }) {
  let count = 0;
  let rowByIndex = new Map();
  const fill = () => {
    const start = scroller.scrollTop;
    const first = Math.max(0, Math.floor(start / height) - BESIDE);
    const last = Math.min(count, Math.ceil((start + scroller.clientHeight) / height) + BESIDE);
    for (const [index, row] of rowByIndex) {
      if ((index < first || index >= last) && !row.contains(document.activeElement)) {
        row.remove();
        rowByIndex.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (rowByIndex.has(index)) continue;
      const row = make(index);
      row.style.top = `${index * height}px`;
      row.style.height = `${height}px`;
      rowByIndex.set(index, row);
      body.append(row);
    }
    sortRows();
  };
  // Screen readers read the document order, not the position. Moving a focused row would blur it, so the others move.
  const sortRows = () => {
    let previous = null;
    for (const [, row] of [...rowByIndex].sort(([a], [b]) => a - b)) {
      if (previous ? previous.nextSibling !== row : body.firstChild !== row) {
        if (row.contains(document.activeElement)) { previous = row; continue; }
        body.insertBefore(row, previous ? previous.nextSibling : body.firstChild);
      }
      previous = row;
    }
  };
  const resize = (next) => {
    count = next;
    body.style.height = `${count * height}px`;
    refresh();
  };
  const refresh = () => {
    const focused = [...rowByIndex].find(([, row]) => row.contains(document.activeElement));
    for (const row of rowByIndex.values()) row.remove();
    rowByIndex = new Map();
    fill();
    if (focused && rowByIndex.has(focused[0])) focusRow(focused[0]);
  };
  const focusRow = (index) => {
    const row = rowByIndex.get(index);
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
  return { resize, refresh, show, fill, row: (index) => rowByIndex.get(index) || null };
}
