// Ways through a graph. A key is whatever the caller tells its nodes apart by: a name, a number.

// What is on the ways from `start` along `next(key)`, a list of keys, to where `isEnd(key)` holds:
// `shortest`, the keys of one with the fewest steps, and `on`, the set of those on any of them.
// null where no way leads to an end. Takes time linear in what can be reached.
function ways(start, next, isEnd) {
  const from = new Map([[start, []]]); // what each reached key was reached from, the nearest first
  const reached = [start];
  const ends = [];
  for (let at = 0; at < reached.length; at += 1) {
    const key = reached[at];
    if (isEnd(key)) ends.push(key);
    for (const other of next(key)) {
      if (!from.has(other)) {
        from.set(other, []);
        reached.push(other);
      }
      from.get(other).push(key);
    }
  }
  if (!ends.length) return null;
  const shortest = [];
  for (let key = ends[0]; key !== start; [key] = from.get(key)) shortest.push(key);
  shortest.push(start);
  const on = new Set(ends);
  for (const key of on) for (const other of from.get(key)) on.add(other);
  return { shortest: shortest.reverse(), on };
}
