// When each token of an episode came to be, in seconds from its start, and where a replay may stop.

// Float64 [T + 1]: the second at which token t was there; the last is the episode's end. null where no times were kept.
// Within a decision tokens are spread evenly: only the start and the end of a turn were timed.
export function secondsOf(episode) {
  const { turn_seconds: turns, seconds, calls } = episode.header;
  if (!turns) return null;
  const found = new Float64Array(episode.length + 1);
  let now = 0;
  for (const span of episode.spans) {
    const times = span.turn >= 0 ? turns[span.turn] : null;
    if (span.trained && times) {
      const spent = calls.filter((call) => call.turn === span.turn).reduce((sum, call) => sum + (call.duration_s ?? 0), 0);
      const end = Math.max(times[0], times[1] - spent);
      for (let t = span.start; t < span.end; t++) found[t] = Math.max(now, times[0] + ((end - times[0]) * (t + 1 - span.start)) / (span.end - span.start));
      now = Math.max(now, end);
    } else {
      if (times) now = Math.max(now, times[1]);
      found.fill(now, span.start, span.end);
    }
  }
  found[episode.length] = Math.max(now, seconds ?? 0);
  return found;
}

// The positions (numbers of tokens seen, ascending) at which a replay by `unit` stops: after every run of tokens, after
// every call and its answer, or after every turn.
export function stopsOf(episode, unit) {
  const begin = episode.spans.find((span) => span.trained)?.start ?? episode.length;
  const stops = new Set([begin, episode.length]);
  if (unit === "call") {
    for (const call of episode.header.calls) stops.add(call.end);
    for (const span of episode.spans) if (span.kind === "feedback") stops.add(span.end);
  } else if (unit === "turn") {
    for (const start of episode.turnStarts()) if (start !== undefined) stops.add(start);
  } else {
    for (let t = begin; t < episode.length; t++) if (!joinsNext(episode, t)) stops.add(t + 1);
  }
  return Float64Array.from(stops).sort();
}

function joinsNext(episode, token) {
  const span = episode.spanOf(token);
  return token + 1 < span.end && span.joined[token + 1 - span.start] === 1;
}

// The first index of ascending `values` with a value above `bound`.
export function above(values, bound) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > bound) high = middle;
    else low = middle + 1;
  }
  return low;
}
