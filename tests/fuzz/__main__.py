"""Run the fuzzer: `python -m tests.fuzz --minutes 10`, with `--seed`, or `--replay FILE`."""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz.branches import branch_table
from tests.fuzz.live import fuzz_live
from tests.fuzz.registry import offline_targets
from tests.fuzz.runner import Campaign, Finding, checked

FINDINGS = Path("fuzz-findings")
_LIVE_SHARE = 0.4


def main() -> int:
    """Run; return 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--targets", nargs="*", help="only these; 'live' are the running processes")
    parser.add_argument("--replay", type=Path, help="check the input of a finding again")
    arguments = parser.parse_args()
    # Warnings of parsers are suppressed: they are no findings, and there are many.
    logging.disable(logging.CRITICAL)
    if arguments.replay:
        return _replay(arguments.replay)
    print(f"seed {arguments.seed}")
    return _fuzz(arguments.seed, arguments.minutes * 60, arguments.targets)


def _fuzz(seed: str, seconds: float, wanted: Sequence[str] | None) -> int:
    targets = [t for t in offline_targets() if not wanted or t.name in wanted]
    live = not wanted or "live" in wanted
    offline_seconds = seconds * (1 - _LIVE_SHARE * live) if targets else 0.0
    campaigns = [Campaign(target, seed, traced=True) for target in targets]
    findings: list[Finding] = []
    if campaigns:
        spent = _run(campaigns, offline_seconds)
        _show(campaigns, spent)
        findings += [finding for campaign in campaigns for finding in campaign.findings]
    if live:
        print(f"running processes, for {seconds - offline_seconds:.0f} s", flush=True)
        findings += fuzz_live(seed, seconds - offline_seconds)
    for finding in findings:
        _report(finding)
    print(f"{len(findings)} findings with seed {seed}")
    return 1 if findings else 0


def _run(campaigns: Sequence[Campaign], seconds: float) -> list[float]:
    """Give every campaign the same time, in turns; return the seconds of each."""
    spent = [0.0] * len(campaigns)
    share = seconds / len(campaigns)
    with Progress(TextColumn("parsers"), BarColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task("", total=seconds)
        while True:
            due = [i for i, c in enumerate(campaigns) if spent[i] < share and not c.given_up]
            if not due:
                return spent
            turn = min(due, key=spent.__getitem__)
            begun = time.monotonic()
            campaigns[turn].round()
            spent[turn] += time.monotonic() - begun
            progress.update(task, completed=sum(spent))


def _show(campaigns: Sequence[Campaign], spent: Sequence[float]) -> None:
    print(f"{'target':14} {'inputs':>10} {'accepted':>9} {'found':>6} {'seconds':>8}")
    for campaign, took in zip(campaigns, spent, strict=True):
        share = campaign.accepted / max(1, campaign.inputs)
        name, found = campaign.target.name, len(campaign.findings)
        print(f"{name:14} {campaign.inputs:10} {share:9.0%} {found:6} {took:8.1f}")
    tracers = [campaign.tracer for campaign in campaigns if campaign.tracer is not None]
    print(branch_table(tracer.coverage for tracer in tracers), flush=True)


def _report(finding: Finding) -> None:
    path = finding.save(FINDINGS)
    print(f"\nFOUND by {finding.target}, seed {finding.seed}, input {finding.number}: {path}")
    print(f"  {finding.data[:400].hex()}")
    print("  " + "\n  ".join(finding.error.splitlines()[-12:]))


def _replay(path: Path) -> int:
    kept = json.loads(path.read_text())
    found = [target for target in offline_targets() if target.name == kept["target"]]
    if not found:
        print(f"{kept['target']} is not a target that can be replayed: run it with its seed")
        return 2
    accepted = checked(found[0], bytes.fromhex(kept["input"]))
    print("accepted" if accepted else "refused by name")
    return 0


if __name__ == "__main__":
    sys.exit(main())
