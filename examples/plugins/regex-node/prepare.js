"use strict";
// What models send for a regular expression, turned into what the schemas want: `/a+b/gi` as it is written in code, a
// lone text, JavaScript's flag for all matches, which the tools find anyway. The same is made of the same always.

const LITERAL = /^\/(.+)\/([a-z]*)$/s;

/** Text that is not JSON, or no object, comes back as it is: the sidecar says what is wrong with it. */
function prepare(tool, argumentsJson) {
  let sent;
  try {
    sent = JSON.parse(argumentsJson);
  } catch {
    return argumentsJson;
  }
  if (sent === null || typeof sent !== "object" || Array.isArray(sent)) return argumentsJson;
  const made = { ...sent };
  const literal = typeof made.pattern === "string" && made.pattern.match(LITERAL);
  if (literal && made.flags === undefined) {
    if (!/^[dgimsuvy]*$/.test(literal[2])) {
      throw Object.assign(new Error(`JavaScript has no flags "${literal[2]}". Mend the pattern.`), { reason: "invalid_flags" });
    }
    [, made.pattern, made.flags] = literal;
  }
  if (typeof made.flags === "string") made.flags = made.flags.replaceAll("g", "");
  if (tool === "match_regex" && made.texts === undefined && typeof made.text === "string") {
    made.texts = [made.text];
    delete made.text;
  }
  return JSON.stringify(made);
}

module.exports = { prepare };
