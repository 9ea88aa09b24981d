"""The table of README.md, from the figures beside it: `python experiments/pods/table.py`."""

import json
import pathlib

HERE = pathlib.Path(__file__).parent
GIB = 2**30
HEAD = (
    "model", "machine", "mesh", "rows, slots", "update GiB", "rollout GiB", "of", "fits",
    "sent GiB", "step at peak s", "update at 40 % s", "faults",
)  # fmt: skip
UPDATE = ("score", "slopes", "pull back", "gradient", "optimizer")


def row(record: dict) -> tuple[str, ...]:
    config, programs = record["config"], record["programs"]
    update = [p for p in programs if p["program"] in UPDATE]
    rollout = [p for p in programs if p["program"] not in UPDATE]
    backward = next((p for p in update if p["program"] in ("pull back", "gradient")), None)
    sent = sum(kind["sent_bytes"] for kind in backward["collectives"].values()) if backward else 0
    faults = sum(bool(found) for p in programs for found in p["faults"].values())
    return (
        pathlib.Path(record["model"]).name.removeprefix("DeepSeek-R1-Distill-"),
        f"{record['topology']} ({record['devices']})",
        " x ".join(map(str, record["mesh"].values())),
        f"{config['packing']['rows']}, {config['rollout']['slots']}",
        _most(update),
        _most(rollout),
        f"{programs[0]['available'] / GIB:.1f}",
        "yes" if record["fits"] else "no: " + "; ".join(record["advice"]),
        f"{sent / GIB:.1f}",
        f"{record['step']['seconds']:.0f}",
        f"{record['step']['update_seconds_at_40']:.0f}",
        str(faults),
    )


def _most(programs: list[dict]) -> str:
    if not programs:
        return "-"
    worst = max(programs, key=lambda p: p["needed"])
    return f"{worst['needed'] / GIB:.1f} {worst['program']}"


def main() -> None:
    records = [json.loads(path.read_text()) for path in sorted(HERE.glob("*.json"))]
    order = {"1.5B": 0, "n-7B": 1, "a-8B": 2}
    records.sort(key=lambda r: (order.get(r["model"][-4:], 3), r["devices"], r["topology"]))
    rows = [HEAD, *(row(record) for record in records)]
    for i, cells in enumerate(rows):
        print("| " + " | ".join(cells) + " |")
        if i == 0:
            print("|" + "---|" * len(HEAD))


if __name__ == "__main__":
    main()
