// Paths through a graph. Nodes are keys: any values that are equal only for the same node.

// Returns the paths from `start` to the keys for which `isEnd(key)` is true, or null if there is no path:
// `shortest`, the keys of a shortest path in order, and `on`, the set of keys on any path.
// `next(key)` returns the keys that follow a key. Takes time linear in the number of edges that can be reached.
function ways(start, next, isEnd) {
  const from = new Map([[start, []]]); // predecessors of each reached key; the first one lies on a shortest path
  const reached = [start];
  const ends = [];
  for (let index = 0; index < reached.length; index += 1) {
    const key = reached[index];
    if (isEnd(key)) ends.push(key);
    for (const following of next(key)) {
      if (!from.has(following)) {
        from.set(following, []);
        reached.push(following);
      }
      from.get(following).push(key);
    }
  }
  if (!ends.length) return null;
  const shortest = [];
  for (let key = ends[0]; key !== start; [key] = from.get(key)) shortest.push(key);
  shortest.push(start);
  const on = new Set(ends);
  // A Set visits keys that are added during the loop: this walks back from the ends to `start`.
  for (const key of on) for (const previous of from.get(key)) on.add(previous);
  return { shortest: shortest.reverse(), on };
}
