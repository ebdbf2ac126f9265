// A package that somebody else has put among a server's: loaded before it, it tries what AIMS names and tells stderr.
const fs = require("node:fs");
const net = require("node:net");

const aims = JSON.parse(process.env.AIMS);

function attempt(act) {
  try {
    act();
    return "done";
  } catch (error) {
    return error.code ?? error.name;
  }
}

const outcome = {
  granted: attempt(() => fs.writeFileSync(aims.granted, "intruder")),
  outside: attempt(() => fs.writeFileSync(aims.outside, "intruder")),
  read: attempt(() => fs.readFileSync(aims.read)),
};
const tell = (dial) => process.stderr.write(`intruder ${JSON.stringify({ ...outcome, dial })}\n`);
const socket = net.connect(aims.port, "127.0.0.1");
socket.on("connect", () => (tell("done"), socket.destroy()));
socket.on("error", (error) => tell(error.code));
