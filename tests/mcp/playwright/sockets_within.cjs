// Preloaded into Playwright's server (node --require), which listens at a socket and connects to that itself. In a
// sandbox nobody may listen: both ends are made within the process, by the path that they have in common.
"use strict";

const net = require("node:net");
const { duplexPair } = require("node:stream");

const servers = new Map();
const { listen } = net.Server.prototype;
const { connect } = net;

net.Server.prototype.listen = function (path, ...rest) {
  if (typeof path !== "string") return listen.call(this, path, ...rest);
  servers.set(path, this.once("listening", rest.at(-1)));
  process.nextTick(() => this.emit("listening"));
  return this;
};

net.connect = net.createConnection = function (path, ...rest) {
  if (!servers.has(path)) return connect.call(this, path, ...rest);
  const [near, far] = duplexPair();
  near.once("connect", rest.at(-1));
  process.nextTick(() => {
    servers.get(path).emit("connection", far);
    near.emit("connect");
  });
  return near;
};
