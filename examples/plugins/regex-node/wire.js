"use strict";
// The two messages of the wire, read from the copies of the .proto files beside this one.

const path = require("node:path");
const protobuf = require("protobufjs");

const root = new protobuf.Root();
// protobufjs brings google/protobuf/duration.proto itself.
root.resolvePath = (_origin, target) =>
  target.startsWith("google/") ? target : path.join(__dirname, "proto", target);
root.loadSync("fumehood/v1/plugin.proto");

const HostFrame = root.lookupType("fumehood.v1.HostFrame");
const PluginFrame = root.lookupType("fumehood.v1.PluginFrame");

const decode = (bytes) => HostFrame.decode(bytes);
const encode = (frame) => Buffer.from(PluginFrame.encodeDelimited(PluginFrame.fromObject(frame)).finish());

module.exports = { decode, encode };
