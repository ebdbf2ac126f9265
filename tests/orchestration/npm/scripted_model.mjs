// A model server with a script: aimock, told what to answer by lines of JSON on stdin, each answered by one on stdout.
// Ends with its stdin. What aimock can't say (broken streams, endless ones, silence) is served under /raw.
import { createInterface } from "node:readline";
import { LLMock } from "@copilotkit/aimock";

const state = { requests: [], headers: [], raws: [], open: new Set(), abandoned: 0 };
const waiting = [];

function wake() {
  for (const each of [...waiting]) {
    if (!each.isMet()) continue;
    waiting.splice(waiting.indexOf(each), 1);
    each.met();
  }
}

const until = (isMet) => new Promise((met) => { waiting.push({ isMet, met }); wake(); });

function took(body) {
  state.requests.push(Object.fromEntries(Object.entries(body).filter(([key]) => !key.startsWith("_"))));
  setImmediate(wake);
}

async function serveRaw(request, response) {
  let text = "";
  for await (const chunk of request) text += chunk;
  const answer = state.raws.shift() ?? { status: 503, chunks: ["no raw answer is left"] };
  took(JSON.parse(text || "{}"));
  if (answer.silent) return true;
  response.writeHead(answer.status ?? 200, { "Content-Type": "text/event-stream", ...answer.headers });
  response.flushHeaders();
  const closed = new Promise((passed) => response.once("close", passed));
  for (let round = 0; round !== (answer.rounds ?? 1) && !response.destroyed; round++) {
    for (const chunk of answer.chunks ?? []) {
      if (!response.write(chunk) && !response.destroyed) {
        await Promise.race([new Promise((drained) => response.once("drain", drained)), closed]);
      }
    }
    // Also without a pause, others get their turn now and then.
    if (answer.pause_ms || round % 256 === 255) await new Promise((passed) => setTimeout(passed, answer.pause_ms ?? 0));
  }
  if (answer.ending === "drop") response.destroy();
  else if (answer.ending !== "hang") response.end();
  return true;
}

const mock = new LLMock({ port: 0, host: "127.0.0.1", logLevel: "silent", strict: true, journalMaxEntries: 1 });
mock.mount("/raw", { handleRequest: serveRaw });

function clear() {
  mock.reset();
  Object.assign(state, { requests: [], headers: [], raws: [], abandoned: 0 });
  for (const each of state.open) each.destroy();
  state.open.clear();
  mock.addFixture({ match: { predicate: (body) => { took(body); return false; } }, response: { content: "" } });
}

function add({ answer, options, when, times }) {
  const fits = (body) => when === "" || JSON.stringify(body.messages).includes(when);
  for (let each = 0; each < (times ?? 1); each++) {
    const match = { predicate: (body) => fits(body) }; // its own: aimock counts by it what was served
    if (times !== null) match.sequenceIndex = 0;
    mock.addFixture({ match, response: answer, ...options });
  }
}

const verbs = {
  add: async (command) => add(command),
  raw: async ({ answer, times }) => { for (let each = 0; each < (times ?? 1); each++) state.raws.push(answer); },
  clear: async () => clear(),
  seen: async () => ({
    requests: state.requests, headers: state.headers, open: state.open.size, abandoned: state.abandoned,
  }),
  arrived: async ({ count }) => { await until(() => state.requests.length >= count); },
  abandoned: async ({ count }) => { await until(() => state.abandoned >= count); },
};

await mock.start();
mock.serverInstance.server.on("request", (request, response) => {
  if (request.method !== "POST") return;
  state.headers.push(request.headers);
  state.open.add(response);
  response.on("close", () => {
    if (!state.open.delete(response)) return;
    if (!response.writableFinished) state.abandoned += 1;
    wake();
  });
});
clear();
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
say({ url: mock.url });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, verb, ...command } = JSON.parse(line);
  verbs[verb](command).then((found) => say({ id, ...found }), (error) => say({ id, error: String(error) }));
}
process.exit(0);
