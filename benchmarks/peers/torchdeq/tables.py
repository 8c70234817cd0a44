"""Tables of the measurements of compare.py: ratios and rows."""

from __future__ import annotations

import statistics

from harness import LIMITS, Row

LIMIT = 0.8  # ours over the peer's best solver
SLACK = 1.05  # what rounding may add to "no larger than"
AHEAD = "fixed_point_iter, ahead"  # the same solver, started at φ(σ_b B x)
SOLVERS = ("fixed_point_iter", AHEAD, "anderson", "anderson_tuned", "broyden")
TOLD = "simple_fixed_point_iter"


def best_of(seconds: dict[str, list[float]]) -> str:
    """The peer's solver with the smallest median, among those that know when to stop."""
    return min(
        (name for name in seconds if name in SOLVERS), key=lambda name: statistics.median(seconds[name])
    )


def ratio(seconds: dict[str, list[float]], competitor: str) -> tuple[float, float, float]:
    """Median, smallest and largest ratio of a round, ours over the competitor."""
    values = [mine / other for mine, other in zip(seconds["ours"], seconds[competitor], strict=True)]
    return statistics.median(values), min(values), max(values)


def milliseconds(values: list[float]) -> float:
    return 1e3 * statistics.median(values)


def ratio_row(row: Row, mode: str) -> Row:
    """Compare ours with the peer's best solver and with the one of a fixed number of steps."""
    seconds = row["seconds"][mode]
    best = best_of(seconds)
    middle, low, high = ratio(seconds, best)
    checked = ["residual"] if mode == "forward" else ["residual", "backward residual"]
    mine, other = row["ours"], row["theirs"][best]
    result: Row = {
        "φ": row["activation"],
        "m": row["m"],
        "true residual ≤": row["target"],
        "peer's best": best,
        "peer (ms)": milliseconds(seconds[best]),
        "ours (ms)": milliseconds(seconds["ours"]),
        "ours / peer": middle,
        "of a round": f"{low:.2f}–{high:.2f}",
        "ours / from zero": ratio(seconds, "fixed_point_iter")[0],
        "ours / told steps": ratio(seconds, TOLD)[0],
        f"{checked[-1]}, peer": other[checked[-1]],
        f"{checked[-1]}, ours": mine[checked[-1]],
        "no larger": all(mine[name] <= SLACK * other[name] for name in checked),
        LIMITS: {"ours / peer": LIMIT},
    }
    if "megabytes" in row:
        result |= {f"MB, {side}": row["megabytes"][f"{mode}, {side}"] for side in ("peer", "ours")}
    if mode == "forward":
        frozen = milliseconds(seconds["ours, frozen"])
        return result | {
            "weights that stay (ms)": frozen,
            "weights that stay / peer": frozen / result["peer (ms)"],
        }
    return result | {
        "gradient error, peer": other["gradient error"],
        "gradient error, ours": mine["gradient error"],
    }


def solver_rows(row: Row) -> list[Row]:
    """What every solver needs: evaluations and true residual at the same tolerance and as matched, and its times."""
    head = {"φ": row["activation"], "m": row["m"], "target": row["target"]}
    rows = []
    for name, found in row["theirs"].items():
        nominal = row["theirs, same tolerance"].get(name, {})
        rows.append(
            head
            | {
                "solver": name,
                "steps, tolerance = target": nominal.get("evaluations"),
                "true residual": nominal.get("residual"),
                "gradient error": nominal.get("gradient error"),
                "steps, matched": found["evaluations"],
                "residual, matched": found["residual"],
                "gradient error, matched": found["gradient error"],
                "forward (ms)": milliseconds(row["seconds"]["forward"][name]),
                "training (ms)": milliseconds(row["seconds"]["training"][name]),
            }
        )
    mine, nominal = row["ours"], row["ours, same tolerance"]
    rows.append(
        head
        | {
            "solver": f"ours ({mine['method']})",
            "steps, tolerance = target": nominal["steps"],
            "true residual": nominal["residual"],
            "gradient error": nominal["gradient error"],
            "steps, matched": mine["steps"],
            "residual, matched": mine["residual"],
            "gradient error, matched": mine["gradient error"],
            "forward (ms)": milliseconds(row["seconds"]["forward"]["ours"]),
            "training (ms)": milliseconds(row["seconds"]["training"]["ours"]),
        }
    )
    return rows


def gradient_row(row: Row) -> Row:
    return {
        "φ": row["activation"],
        "m": row["m"],
        "tolerance": row["target"],
        "ours, implicit": row["ours, same tolerance"]["gradient error"],
        "peer, implicit": row["theirs, same tolerance"]["fixed_point_iter"]["gradient error"],
        "peer, phantom (its default)": row["phantom"]["1"],
        "peer, phantom with 5 steps": row["phantom"]["5"],
    }


def summary(row: Row) -> str:
    forward, training = (ratio_row(row, mode)["ours / peer"] for mode in ("forward", "training"))
    return (
        f"{row['activation']}, m = {row['m']}, {row['target']:g}: "
        f"forward {forward:.2f}, training {training:.2f} of the peer's best"
    )


def together(records: list[Row]) -> Row:
    """One paragraph on sections of several runs."""
    commits = list(dict.fromkeys(record["commit"] for record in records))
    return records[0] | {
        "commit": ", ".join(commits),
        "seconds": round(sum(record["seconds"] for record in records), 1),
        "load_average_after": records[-1]["load_average_after"],
    }


def tables_of(rows: list[Row]) -> dict[str, list[Row]]:
    """The tables by name: outputs, gradients of a training step, accuracy of gradients, every solver."""
    return {
        "outputs": [ratio_row(row, "forward") for row in rows],
        "gradients": [ratio_row(row, "training") for row in rows],
        "accuracy": [gradient_row(row) for row in rows],
        "solvers": [line for row in rows for line in solver_rows(row)],
    }
