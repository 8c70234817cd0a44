"""The tables and the figure of docs/atlas.md from the journals of atlas.py."""

from __future__ import annotations

from collections.abc import Mapping

from harness import ROOT, Row, markdown_table

PAGE = ROOT / "docs" / "atlas.md"
START, END = "<!-- measured: atlas -->", "<!-- end: atlas -->"
ROUNDS = {
    3: "Third round: settings that did not serve to choose the rule",
    2: "Second round: judged by a rule that it has changed",
    1: "First round: judged by the first rule, which it has changed",
}
KINDS = {
    "readout": "readout trained",
    "all": "all weights trained",
    "regression": "regression, readout trained",
    "images": "images, readout trained",
    "chain": "marks at two ends, readout trained",
    "trained": "trained DEQ, distilled",
}


def publish(verdicts: Mapping[str, Row], truths: Mapping[str, Row]) -> None:
    """Write the measured part of the page anew."""
    rows = [
        {**verdicts[name], "truth": truths[name]}
        for name in verdicts
        if name in truths and "failed" not in verdicts[name]
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{START}\n\n{measured(rows)}\n\n{END}{after}", encoding="utf-8")


def mark(row: Row) -> str:
    """Right, wrong, uncertain, or not run."""
    if "failed" in row["truth"]:
        return "not run"
    if row["answer"] == "uncertain":
        return "uncertain"
    return "right" if (row["answer"] == "yes") == row["truth"]["does"] else "**wrong**"


def measured(rows: list[Row]) -> str:
    """The summary of each round, the last one first, and every setting."""
    parts = []
    for number, title in ROUNDS.items():
        chosen = [row for row in rows if row.get("round", 1) == number]
        parts += [f"### {title}", "", markdown_table(_summary(chosen)), ""]
    for number, title in ROUNDS.items():
        chosen = [row for row in rows if row.get("round", 1) == number]
        parts += [f"### Every setting: {title[0].lower()}{title[1:]}", ""]
        parts += [markdown_table([_line(row) for row in chosen]), ""]
    return "\n".join(parts).rstrip()


def _summary(rows: list[Row]) -> list[Row]:
    table = []
    for kind, words in [*KINDS.items(), ("", "all")]:
        chosen = [row for row in rows if not kind or row["kind"] == kind]
        marks = [mark(row) for row in chosen if mark(row) != "not run"]
        if not marks:
            continue
        right, wrong = marks.count("right"), marks.count("**wrong**")
        table.append(
            {
                "settings": words, "number": len(marks),
                "twin does": sum(row["truth"].get("does", False) for row in chosen),
                "right": right, "wrong": wrong, "uncertain": marks.count("uncertain"),
                "right, of all": f"{right / len(marks):.0%}",
                "right, of those decided": f"{right / max(right + wrong, 1):.0%}",
            }
        )  # fmt: skip
    return table


def _line(row: Row) -> Row:
    truth = row["truth"]
    if "failed" in truth:
        happened = "did not converge"
    elif row["kind"] == "trained":
        happened = f"agrees on {truth['agreement']:.1%}, {truth['speed']:.1f} × as fast"
    elif truth["regression"]:
        happened = (
            f"error {truth['twin']:.3g} / {truth['deq']:.3g} ({truth['gap']:+.0%} ± {truth['error']:.0%})"
        )
    else:
        happened = (
            f"{100 * truth['twin']:.1f} / {100 * truth['deq']:.1f} % "
            f"({-100 * truth['gap']:+.2f} ± {100 * truth['error']:.2f}), {truth['speed']:.1f} × as fast"
        )
    return {
        "kind": KINDS[row["kind"]], "data": row["data"], "φ": row["activation"],
        "σ_a², σ_b²": f"{row['sigma_a2']:g}, {row['sigma_b2']:g}", "width": row["width"],
        "verdict": row["answer"], "predicted": _predicted(row), "twin / DEQ, really": happened,
        "verdict was": mark(row),
    }  # fmt: skip


def _predicted(row: Row) -> str:
    if row["trained"]:
        return f"{row['trained']['steps']} steps agree on {row['trained']['agreement']:.1%} in closed form"
    if not row["gaps"]:
        return ""
    gap = row["gaps"][-1]
    if gap["regression"]:
        return f"error {gap['twin']:.3g} / {gap['deq']:.3g}"
    return f"{100 * gap['twin']:.1f} / {100 * gap['deq']:.1f} %"
