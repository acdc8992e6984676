// Decodes the bytes of tokens to text and says where each token lies in it, in UTF-16 units.
//
// Follows the Encoding Standard, so that the text equals what TextDecoder gives for the same bytes. Tokens that end
// inside a character form one run with the tokens that finish it: the ids stay apart, the text is shown together.

// Decodes the tokens [first, last). Returns {text, ends, joined}: `ends[i]` is where token first+i ends in `text`, and
// `joined[i]` is 1 where token first+i continues the run of the token before it.
export function decodeTokens(bytes, byteStart, byteLengths, first, last) {
  const count = last - first;
  const ends = new Uint32Array(count);
  const joined = new Uint8Array(count);
  let size = 0;
  for (let t = first; t < last; t++) size += byteLengths[t];
  const units = new Uint16Array(2 * size + 1);
  let out = 0, needed = 0, seen = 0, point = 0, lower = 0x80, upper = 0xbf;
  let at = byteStart;
  for (let i = 0; i < count; i++) {
    if (needed > 0) joined[i] = 1;
    for (const stop = at + byteLengths[first + i]; at < stop; at++) {
      const byte = bytes[at];
      if (needed > 0) {
        if (byte >= lower && byte <= upper) {
          lower = 0x80; upper = 0xbf;
          point = (point << 6) | (byte & 0x3f);
          if (++seen === needed) {
            if (point > 0xffff) {
              units[out++] = 0xd800 + ((point - 0x10000) >> 10);
              units[out++] = 0xdc00 + ((point - 0x10000) & 0x3ff);
            } else units[out++] = point;
            needed = seen = 0;
          }
          continue;
        }
        units[out++] = 0xfffd;
        needed = seen = 0; lower = 0x80; upper = 0xbf;
      }
      if (byte <= 0x7f) units[out++] = byte;
      else if (byte >= 0xc2 && byte <= 0xdf) { needed = 1; point = byte & 0x1f; }
      else if (byte >= 0xe0 && byte <= 0xef) {
        if (byte === 0xe0) lower = 0xa0;
        if (byte === 0xed) upper = 0x9f;
        needed = 2; point = byte & 0xf;
      } else if (byte >= 0xf0 && byte <= 0xf4) {
        if (byte === 0xf0) lower = 0x90;
        if (byte === 0xf4) upper = 0x8f;
        needed = 3; point = byte & 0x7;
      } else units[out++] = 0xfffd;
    }
    ends[i] = out;
  }
  if (needed > 0) {
    units[out++] = 0xfffd;
    ends[count - 1] = out;
  }
  // Within a run every token ends where the run ends: the whole run carries the text.
  for (let i = count - 2; i >= 0; i--) if (joined[i + 1]) ends[i] = ends[i + 1];
  return { text: unitsToText(units, out), ends, joined };
}

// Lone surrogates cannot occur here, so a UTF-16 decoder gives the text back unit by unit.
function unitsToText(units, length) {
  const decoder = new TextDecoder("utf-16le", { ignoreBOM: true });
  return decoder.decode(new Uint8Array(units.buffer, 0, 2 * length));
}
