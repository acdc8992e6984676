// Reads a block: a deflated JSON header with typed columns (see pack.py for the layout).

const DTYPES = { i4: Int32Array, u4: Uint32Array, u1: Uint8Array, f4: Float32Array };

// Returns {header, columns}: `columns` maps a name to its typed array.
export async function readBlock(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = await new Response(stream).arrayBuffer();
  const size = new DataView(raw).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 4, size)));
  const columns = new Map();
  for (const [name, dtype, offset, length] of header.columns) {
    const Type = DTYPES[dtype];
    const start = 4 + size + offset;
    columns.set(name, Type === Uint8Array ? new Uint8Array(raw, start, length) : new Type(fromPlanes(new Uint8Array(raw, start, 4 * length), length)));
  }
  return { header, columns };
}

// Four-byte numbers lie in planes, the lowest byte of all first.
function fromPlanes(bytes, length) {
  const numbers = new Uint32Array(length);
  const second = bytes.subarray(length), third = bytes.subarray(2 * length), fourth = bytes.subarray(3 * length);
  for (let i = 0; i < length; i++) numbers[i] = bytes[i] | (second[i] << 8) | (third[i] << 16) | (fourth[i] << 24);
  return numbers.buffer;
}

export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
