"""The page of `lore stats cache`. Pure."""

from typing import Any

from orchestrator.cli.figures import count, duration, plural, size, table

PLACES = {"vram": "cells", "ram": "checkpoints", "disk": "checkpoints"}


def page(report: dict[str, Any]) -> str:
    tokens = report["tokens"]
    rows = [tier_row(name, report["tiers"][name]) for name in ("vram", "ram", "disk")]
    rows.append(("computed", "", count(tokens["computed"]), "", ""))
    lines = [
        f"{count(tokens['cached'])} of {count(tokens['prompt'])} prompt tokens cached, "
        f"about {duration(report['saved_ms'] / 1000)} saved (at {report['ms_per_token']:.2f} ms a token)",
        "",
        table(("where", "what", "tokens", "hits", "bytes"), rows),
        "",
        *traffic(report),
    ]
    return "\n".join([*lines, report["note"]] if report["note"] else lines)


def tier_row(name: str, tier: dict[str, Any]) -> tuple[str, ...]:
    return tier["memory"], PLACES[name], count(tier["tokens"]), percent(tier["hit_rate"]), size(tier["bytes"])


def traffic(report: dict[str, Any]) -> list[str]:
    out, back, drafts, faults = report["evictions"], report["restores"], report["drafts"], report["faults"]
    lines = [
        f"checkpoints  {plural(report['segments'], 'segment')}",
        f"evicted      {count(out['vram_tokens'])} tokens of cells, {plural(out['ram_segments'], 'segment')} of RAM, "
        f"{count(out['disk_segments'])} of disk",
        f"restored     {plural(back['ram_segments'], 'segment')} from RAM, {count(back['disk_segments'])} from disk, "
        f"{size(back['bytes'])}",
        f"drafts       {count(drafts['accepted'])} of {count(drafts['drafted'])} tokens accepted"
        + (f" ({percent(drafts['rate'])})" if drafts["rate"] is not None else ""),
        f"padding      {count(report['tokens']['padded'])} tokens, to fill steps",
    ]
    if any(faults.values()):
        told = f"{count(faults['damaged'])} damaged, {count(faults['write_failures'])} not written"
        lines.append(f"faults       {plural(faults['misses'], 'miss', 'misses')}, {told}")
    if faults["failed_steps"]:
        lines.append(f"             {plural(faults['failed_steps'], 'step')} failed: its pool was made anew")
    if faults["broken_pools"]:
        lines.append(
            f"             {plural(faults['broken_pools'], 'pool')} given up: its cells were not what they should be"
        )
    return lines


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
