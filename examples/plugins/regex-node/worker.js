"use strict";
// Runs one call on a thread of its own: a pattern that backtracks for ever can be stopped by ending the thread, while
// the main thread goes on to read frames.

const { parentPort, workerData } = require("node:worker_threads");

const MAX_MATCHES = 10_000;

function compile(pattern, flags) {
  try {
    return new RegExp(pattern, `${flags ?? ""}g`);
  } catch (error) {
    throw Object.assign(new Error(`${error.message}. Mend the pattern.`), { reason: "invalid_pattern" });
  }
}

const nullable = (value) => value ?? null;

function matchRegex({ pattern, flags, texts }) {
  const regex = compile(pattern, flags);
  const matches = [];
  let matchedTexts = 0;
  texts.forEach((text, textIndex) => {
    const before = matches.length;
    for (const found of text.matchAll(regex)) {
      if (matches.length === MAX_MATCHES) {
        throw Object.assign(new Error(`more than ${MAX_MATCHES} matches. Narrow the pattern, or send less text.`), {
          reason: "too_many_matches",
        });
      }
      const entry = { text_index: textIndex, index: found.index, match: found[0], groups: found.slice(1).map(nullable) };
      if (found.groups) {
        entry.named_groups = Object.fromEntries(Object.entries(found.groups).map(([name, value]) => [name, nullable(value)]));
      }
      matches.push(entry);
    }
    if (matches.length > before) matchedTexts += 1;
    parentPort.postMessage({ done: textIndex + 1, total: texts.length });
  });
  return { matched_texts: matchedTexts, matches };
}

function replaceRegex({ pattern, flags, text, replacement }) {
  const regex = compile(pattern, flags);
  const replacements = [...text.matchAll(regex)].length;
  return { text: text.replace(regex, replacement), replacements };
}

const TOOLS = { match_regex: matchRegex, replace_regex: replaceRegex };

try {
  parentPort.postMessage({ details: TOOLS[workerData.tool](workerData.arguments) });
} catch (error) {
  parentPort.postMessage({ failure: { message: error.message, reason: error.reason ?? "" } });
}
