"""`fumehood doctor`: prints the doctor report."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.failure import ExitStatus

_HEADINGS = {
    "machine": "This machine",
    "sandbox": "The sandbox, each layer tried by starting one",
    "landlock": "The sandbox without namespaces, tried likewise; used only where [sandbox] minimum allows it",
    "configuration": "The configuration",
    "sidecar": "The sidecar",
}
_MARKS = {
    "in force": ("✓", "green"),
    "ok": ("✓", "green"),
    "weaker": ("!", "yellow"),
    "note": ("·", "yellow"),
    "missing": ("✗", "red"),
}


@click.command(short_help="What this machine can enforce, and how to get the rest.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def doctor(config_path: Path | None, as_json: bool, address: str | None) -> int:
    """Say what this machine can enforce, what is missing, and how to get it.

    Every layer of the sandbox is tried, by starting a sandbox and trying to get out of it. Exit status 1 when something
    is missing without which the sidecar can't serve.

    \b
    Examples:
      fumehood doctor
      fumehood doctor --json | jq -r '.findings[] | select(.status == "missing") | .remedy'
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.doctor_report import make_doctor_report

    report = make_doctor_report(config_path, address)
    status = ExitStatus.OK if report.usable else ExitStatus.FAILED
    if as_json:
        output.print_json(report.to_json())
        return status
    console = output.console()
    for area, findings in groupby(report.findings, key=lambda finding: finding.area):
        console.print(output.styled(_HEADINGS.get(area, area), "bold"))
        table = output.table("", "", "", "")
        for finding in findings:
            mark, style = _MARKS.get(finding.status, ("?", "yellow"))
            name = finding.feature if area == "configuration" else finding.layer
            detail = output.styled(finding.detail)
            if finding.feature not in {name, ""} and area in {"sandbox", "landlock"}:
                detail = output.styled(f"{finding.feature}: {finding.detail}")
            table.add_row(
                output.styled(f"  {mark}", style),
                output.styled(name),
                output.styled("" if finding.status == "ok" else finding.status, style),
                detail,
            )
            if finding.remedy:
                table.add_row("", "", "", output.styled(finding.remedy, "cyan"))
        output.show_rows(console, table)
        console.print()
    if report.usable:
        weaker = any(finding.layer == "backend" and finding.status == "weaker" for finding in report.findings)
        how = " without namespaces, as the configuration allows; each receipt names what is weaker" if weaker else ""
        console.print(output.styled(f"This machine can hold every level that this version serves{how}.", "green"))
    else:
        missing = sum(finding.status == "missing" for finding in report.findings)
        console.print(
            output.styled(f"{output.plural(missing, 'thing')} missing; what to do stands beneath each.", "red")
        )
    return status
