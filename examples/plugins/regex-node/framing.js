"use strict";
// Cuts stdin into frames: each is preceded by its length as a varint (docs/protocol.md, 1.3).

const MAX_PREFIX_BYTES = 5;

class FrameReader {
  /** Calls `onFrame` with the bytes of each whole frame. A pipe delivers bytes in pieces of any size. */
  constructor(onFrame) {
    this.onFrame = onFrame;
    this.pieces = [];
    this.size = 0;
    this.needed = 1;
  }

  push(piece) {
    this.pieces.push(piece);
    this.size += piece.length;
    if (this.size < this.needed) return; // joined only when it is of use, so that a large frame costs linear time
    let buffer = this.pieces.length === 1 ? piece : Buffer.concat(this.pieces);
    for (;;) {
      const prefix = readLength(buffer);
      this.needed = prefix ? prefix.bytes + prefix.length : buffer.length + 1;
      if (buffer.length < this.needed) break;
      const frame = buffer.subarray(prefix.bytes, this.needed);
      buffer = buffer.subarray(this.needed);
      this.onFrame(frame);
    }
    this.pieces = [buffer];
    this.size = buffer.length;
  }
}

/** The length and how many bytes it took, or null while it is not whole. */
function readLength(buffer) {
  let length = 0;
  for (let at = 0; at < buffer.length; at++) {
    if (at === MAX_PREFIX_BYTES) throw new Error("a length prefix of more than 5 bytes");
    length += (buffer[at] & 0x7f) * 2 ** (7 * at);
    if (!(buffer[at] & 0x80)) return { length, bytes: at + 1 };
  }
  return null;
}

module.exports = { FrameReader };
