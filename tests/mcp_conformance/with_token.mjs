// Loaded before the suite, which has no option for it: every request shows the token of FUMEHOOD_TOKEN.
import http from "node:http";
import { createRequire } from "node:module";

const { Agent, setGlobalDispatcher } = createRequire(process.argv[1])("undici");
const authorization = `Bearer ${process.env.FUMEHOOD_TOKEN}`;

function shown(headers) {
  if (Array.isArray(headers)) return [...headers, "authorization", authorization];
  if (headers && typeof headers[Symbol.iterator] === "function") return [...headers, ["authorization", authorization]];
  return { ...headers, authorization };
}

setGlobalDispatcher(
  new Agent().compose((dispatch) => (options, handler) => dispatch({ ...options, headers: shown(options.headers) }, handler)),
);

const request = http.request;
http.request = (where, ...more) => {
  const made = request(where, ...more);
  made.setHeader("authorization", authorization);
  return made;
};
