"""`fumehood approvals watch`: a live screen on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.failure import CommandError
from fumehood_server.model.text import visible_line

if TYPE_CHECKING:
    from fumehood.v1 import approval_service_pb2 as pb
    from rich.live import Live

    from fumehood_server.cli.approval_screen import Screen
    from fumehood_server.cli.client import SidecarClient

_MOVES = {"k": -1, "j": 1, "\x1b[A": -1, "\x1b[B": 1}
_KEY_BYTES = 8
_TICK_S = 1.0
"""Between two drawings while nothing happens: what time is left is on the screen."""


@click.command(short_help="Decide on a live screen.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each approval that opens or changes.")
@address_option
def watch(as_json: bool, address: str | None) -> None:
    """Show what waits for an approval, and decide by a key. Ctrl-C or q ends it.

    \b
    The selected call is shown with its tool, level and grants, who asks, and its arguments against those of the last
    call of the same tool:
      y  approve         n  deny, after a reason         e  change the arguments in $EDITOR, and approve
      s  approve, and let it stand for later calls       r  a reason for the next decision
      ↑ ↓ or k j  select
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.approval_json import approval_json
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        if as_json or not sys.stdout.isatty() or not sys.stdin.isatty():
            for each in client.watch_approvals():
                if each.HasField("approval"):
                    output.print_json(approval_json(each.approval), compact=True)
            return
        _Terminal(client).run()


class _Terminal:
    def __init__(self, client: SidecarClient) -> None:
        from fumehood_server.cli.approval_screen import Screen

        self._client = client
        self._screen: Screen = Screen(last_of=self._last_of, grants_of=self._grants_of)
        self._lock = threading.Lock()
        self._woken, self._wake = os.pipe()
        self._failure: CommandError | None = None

    def run(self) -> None:
        """Until the person leaves, or the sidecar does."""
        from rich.live import Live

        from fumehood_server.cli import output

        threading.Thread(target=self._follow, daemon=True).start()
        while True:
            with Live(console=output.console(), auto_refresh=False, screen=True) as live, _keys_at_once():
                key = self._next_key(live)
            if key in {"", "q", "\x03", "\x04"}:
                break
            self._press(key)
        if self._failure is not None:
            raise self._failure

    def _next_key(self, live: Live) -> str:
        """Draw until a key is pressed that leaves the screen or decides. Empty: the sidecar has left."""
        while True:
            with self._lock:
                live.update(self._screen.render(live.console), refresh=True)
            ready, _, _ = select.select([sys.stdin.fileno(), self._woken], [], [], _TICK_S)
            if self._woken in ready:
                os.read(self._woken, 4096)
            if self._failure is not None:
                return ""
            if sys.stdin.fileno() in ready:
                key = os.read(sys.stdin.fileno(), _KEY_BYTES).decode(errors="replace")
                if key not in _MOVES:
                    return key
                self._screen.move(_MOVES[key])

    def _press(self, key: str) -> None:
        from fumehood_server.cli.approval_screen import pretty, whole

        screen = self._screen
        approval = screen.drawn
        screen.said = ""
        if key == "r":
            screen.reason = click.prompt("Reason", default="", show_default=False)
        elif approval is None:
            return
        elif key in {"y", "s"}:
            if screen.is_cut:
                click.echo_via_pager(whole(approval))
                if not click.confirm("Not all of it was on the screen. Approve what was just shown"):
                    screen.said = "Nothing was decided."
                    return
            if key == "y":
                self._decide(approval, "APPROVE")
            else:
                self._stand(approval)
        elif key == "n":
            screen.reason = screen.reason or click.prompt(f"Why is {approval.tool} denied")
            self._decide(approval, "DENY")
        elif key == "e":
            text = click.edit(pretty(approval.arguments_json), extension=".json")
            if text is None:
                screen.said = "Nothing was changed, and nothing decided."
            else:
                self._decide(approval, "APPROVE", arguments=text)

    def _stand(self, approval: pb.Approval) -> None:
        """Ask for the terms, and approve the call and those like it."""
        from fumehood_server.cli.standing_terms import standing_terms

        screen = self._screen
        if not all(each.standing for each in approval.requirements):
            screen.said = "Not all rules that ask let an approval stand. Nothing was decided."
            return
        lasts = click.prompt("For how long", default="1h")
        calls = click.prompt("For how many calls beside this one (0: any number)", default=0, type=click.IntRange(0))
        session_id = approval.context.session_id
        session = bool(session_id) and click.confirm(f"Only in session {visible_line(session_id)}")
        test = click.prompt("Where, such as /path=~^/srv/ (empty: these arguments)", default="", show_default=False)
        try:
            terms = standing_terms(lasts=lasts, calls=calls, session=session, where=[test] if test else [])
        except CommandError as error:
            screen.said = f"{error.what} {error.todo}"
            return
        self._decide(approval, "APPROVE", standing=terms)

    def _decide(
        self, approval: pb.Approval, choice: str, arguments: str = "", standing: pb.StandingTerms | None = None
    ) -> None:
        from fumehood.v1 import approval_service_pb2 as pb

        screen = self._screen
        request = pb.DecideApprovalRequest(
            approval_id=approval.approval_id,
            choice=pb.ApprovalChoice.Value(f"APPROVAL_CHOICE_{choice}"),
            digest=approval.digest,
            reason=screen.reason,
            arguments_json=arguments,
            standing=standing,
        )
        try:
            decided = self._client.decide_approval(request)
        except CommandError as error:
            screen.said = f"{error.what} {error.todo or ''}"
            if error.code == "APPROVAL_CHANGED":
                self._look_again(approval.approval_id)
            return
        state = pb.ApprovalState.Name(decided.state).removeprefix("APPROVAL_STATE_").lower()
        stands = "" if standing is None else f", and {decided.decisions[-1].standing_id} stands"
        screen.said, screen.reason = f"{decided.tool}: {state}{stands}", ""
        with self._lock:
            screen.take(decided)

    def _look_again(self, approval_id: str) -> None:
        """Show one as it is now: rules that are taken up change no approval, and so nothing tells of it."""
        try:
            found = self._client.list_approvals(approval_id)
        except CommandError:  # it is told of as it closes
            return
        with self._lock:
            for each in found:
                self._screen.take(each)

    def _follow(self) -> None:
        try:
            for each in self._client.watch_approvals():
                if each.HasField("approval"):
                    with self._lock:
                        self._screen.take(each.approval)
                    os.write(self._wake, b"x")
        except CommandError as error:
            self._failure = error
        os.write(self._wake, b"x")

    def _last_of(self, tool: str) -> str:
        """The arguments of the tool's last call. Empty: there was none, or they are not kept."""
        from fumehood.v1 import journal_service_pb2 as journal_pb

        wanted = journal_pb.EventFilter(tool=tool, types=["execute_start"])
        try:
            events, _ = self._client.newest_events(wanted, 1, payloads=True)
        except CommandError:
            return ""
        return next((part.data.decode(errors="replace") for each in events for part in each.payloads if part.data), "")

    def _grants_of(self, plugin: str) -> list[str]:
        try:
            grants = self._client.get_plugin(plugin).grants
        except CommandError:
            return []
        named = (("read", grants.readable_paths), ("write", grants.writable_paths), ("reach", grants.hosts))
        return [f"{verb} {', '.join(some)}" for verb, some in named if some]


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Have the terminal hand over each key as it is pressed, unseen (termios(3): cbreak mode)."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
