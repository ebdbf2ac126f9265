"""A plugin whose tools take much from outside."""

CODE = """
import asyncio, os, pathlib, time
from fumehood_sdk import Context, Plugin, ToolError

plugin = Plugin("outside", version="1.0.0")


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


@plugin.tool(side_effects="external")
async def gather(port: int, part: int, ctx: Context) -> dict:
    \"\"\"Takes much from outside, tasks side by side.\"\"\"
    async def one(number: int) -> str:
        return (await ctx.http.aget(f"http://127.0.0.1:{port}/{part}/{number}")).text
    begun = ctx.now().isoformat()
    texts = await asyncio.gather(*map(one, range(4)))
    token = await ctx.aside_effect("token", token_of)
    return {"begun": begun, "texts": texts, "token": token, "drawn": ctx.random().randrange(10**9),
            "ended": ctx.now().isoformat()}


async def token_of() -> list:
    return [os.urandom(8).hex(), time.time()]


@plugin.tool(side_effects="none")
def clock() -> float:
    \"\"\"Reads the real clock.\"\"\"
    return time.time()


@plugin.tool(side_effects="none")
def told(ctx: Context) -> list:
    \"\"\"Reads the recorded clock.\"\"\"
    return [ctx.now().isoformat() for _ in range(600)]


@plugin.tool(side_effects="write", requires=["write"])
def note(folder: str, recorded: bool, ctx: Context) -> str:
    \"\"\"Writes a file, as a side effect or not.\"\"\"
    def write():
        with open(f"{folder}/note", "a") as file:
            file.write("a line\\n")
        return "written"
    return ctx.side_effect("note", write) if recorded else write()


@plugin.tool(side_effects="external")
def stumble(port: int, ctx: Context) -> list:
    \"\"\"Gets errors, and says which.\"\"\"
    found = []
    def fails():
        raise Odd("a", 2)
    def missing():
        return open("/nowhere").read()
    for name, attempt in (("odd", fails), ("missing", missing)):
        try:
            ctx.side_effect(name, attempt)
        except Odd as error:
            found.append(["odd", *error.args])
        except OSError as error:
            found.append([type(error).__name__, error.errno])
    for url in (f"http://127.0.0.1:{port}/missing", "http://elsewhere.example/"):
        try:
            found.append(ctx.http.get(url).status)
        except ToolError as error:
            found.append([type(error).__name__, error.reason])
    return found


@plugin.tool(side_effects="none")
def gives_up(ctx: Context) -> str:
    \"\"\"Fails for what it got.\"\"\"
    def fails():
        raise ValueError("no luck")
    return ctx.side_effect("luck", fails)


@plugin.tool(side_effects="read", requires=["secret:KEY"])
def signs(ctx: Context) -> str:
    \"\"\"Says what it must not.\"\"\"
    return f"signed with {ctx.secret('KEY')}"


@plugin.tool(side_effects="read", requires=["read"])
def lingers(path: str) -> str:
    \"\"\"Ends where it can read a file, and else never.\"\"\"
    while not os.path.exists(path):
        time.sleep(1)
    return "it is there"


@plugin.tool(side_effects="external")
def lies(port: int, ctx: Context) -> str:
    \"\"\"Says that it got a response that nobody gave it, beside one that it got.\"\"\"
    from fumehood_sdk.recording import recording_of
    from fumehood_sdk.wire.recorded_values import RecordedValue
    ctx.http.get(f"http://127.0.0.1:{port}/true")
    made_up = '{"status": 200, "url": "", "headers": [], "redirects": 0, "text": "rich"}'
    recording_of(ctx._call).put(RecordedValue("http", "GET http://bank.example/", 1, made_up))
    return "rich"


@plugin.tool(side_effects="none")
def greedy(ctx: Context) -> int:
    \"\"\"Takes more than is kept.\"\"\"
    for _ in range(12000):
        ctx.now()
    return 1
"""
