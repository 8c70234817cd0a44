"""The tables of benchmarks/distillation.py, from its rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from harness import Row, markdown_table

KEYS = ("data", "activation", "feedback", "width", "trained", "seed")
# What was aimed at: agreement in percent, accuracy lost in points, times as fast as the DEQ, agreement with the guard.
AGREEMENT, LOST, FASTER, GUARDED = {"mnist": 99.5}, 0.2, {"1e-3": 4.0, "1e-6": 7.0}, 99.7
AGREEMENT_ELSE = 99.0
# Kinds of candidates in which something was fitted.
STUDENTS = ("closed form", "fitted", "early exit")
# How rows call the solver that most code has; the DEQ of this package is timed in the quickest of four ways.
PLAIN = "iteration"
Teacher = list[Row]


def report(rows: list[Row]) -> str:
    """Everything in Markdown."""
    teachers = _teachers(rows)
    return "\n".join(
        [
            "# Distillation\n",
            f"{len(teachers)} teachers. The student is the cheapest that was sure to reach the wanted agreement on "
            "rows that chose it, docs/theory.md (12.5); all figures are of the test part, which nothing was fitted to "
            "or chosen by.\n",
            "## Students beside what was aimed at\n",
            "Means, with the worst teacher in brackets. 'lost' is the teacher's accuracy less the student's; 'faster' "
            "is the DEQ solved to a residual of 1e-3 or 1e-6 in the quickest of four ways over the student, forward, "
            "processor time, beside it the same where every row has to cost the same (no early exit), and for plain "
            "iteration; 'guarded' is the agreement when the DEQ answers "
            "for the least certain 5 % of the rows; 'undesigned' has the student's shape and torch's random weights, "
            "fitted alike; 'unreadable' are students of the same teachers when their weights cannot be read.\n",
            markdown_table([_summary(name, part) for name, part in _by_data(teachers).items()]),
            _verdicts(teachers),
            "## What was met, and what was not\n",
            _MET,
            markdown_table([_met_row(one) for one in teachers]),
            "## By the number of steps\n",
            "Agreement in percent, means over teachers: the DEQ cut, its steps and readout fitted in closed form, all "
            "weights fitted, and all weights fitted with steps of low rank.\n",
            markdown_table(
                [_steps_row(key, part) for key, part in _by(teachers, "data", "feedback").items()]
            ),
            "## Beside cutting at the same cost\n",
            _beside_cutting(teachers),
            "## Every teacher\n",
            "epochs: in which all weights of a student were fitted; with four, only students of one and two steps. "
            "norm: of ∂f/∂z at equilibria, a mean; rate: its spectral radius, mean and largest of some rows; steps: of "
            "the solver to 1e-3 and 1e-6.\n",
            markdown_table([_teacher_row(part) for part in teachers]),
            *(f"Failed: {_title([row])}. {row['reason']}\n" for row in rows if row["kind"] == "failed"),
        ]
    )


def short(rows: list[Row]) -> str:
    """What docs/results.md shows."""
    teachers = _teachers(rows)
    return "\n".join(
        [
            markdown_table([_summary(name, part) for name, part in _by_data(teachers).items()]),
            _verdicts(teachers) + _intervals(teachers) + _beside_cutting(teachers),
            _MET,
            markdown_table([_met_row(one) for one in teachers]),
        ]
    )


def _teachers(rows: list[Row]) -> list[Teacher]:
    found: dict[tuple[object, ...], Teacher] = {}
    for row in rows:
        if row["kind"] != "failed":
            found.setdefault(tuple(row[key] for key in KEYS), []).append(row)
    return list(found.values())


def _by(teachers: list[Teacher], *keys: str) -> dict[tuple[object, ...], list[Teacher]]:
    found: dict[tuple[object, ...], list[Teacher]] = {}
    for one in teachers:
        found.setdefault(tuple(one[0][key] for key in keys), []).append(one)
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def _by_data(teachers: list[Teacher]) -> dict[str, list[Teacher]]:
    return {str(key[0]): part for key, part in _by(teachers, "data").items()}


def _named(teacher: Teacher, name: str) -> Row | None:
    return next((row for row in teacher if row["name"] == name), None)


def _chosen(teacher: Teacher) -> Row:
    return next(row for row in teacher if row.get("chosen"))


def _single(teacher: Teacher) -> Row:
    """What is given if every row has to cost the same."""
    return next((row for row in teacher if row.get("chosen_single")), _chosen(teacher))


def _lost(teacher: Teacher) -> float:
    return teacher_accuracy(teacher) - _chosen(teacher)["accuracy"]


def teacher_accuracy(teacher: Teacher) -> float:
    return next(row["accuracy"] for row in teacher if row["name"] == "DEQ at 1e-6")


def _solving(teacher: Teacher, tolerance: str, way: str | None = None) -> float:
    """Milliseconds of the DEQ, in its quickest way or in a given one."""
    row = next(row for row in teacher if row["name"] == f"DEQ at {tolerance}")
    return row["ms"] if way is None else row["ways"][way]


def _faster(tolerance: str, way: str | None = None) -> Callable[[Teacher], float]:
    return lambda teacher: _solving(teacher, tolerance, way) / _chosen(teacher)["ms"]


def _cheapest_with_aim(teacher: Teacher) -> Row | None:
    """The quickest student of the front with the wanted agreement and accuracy on the test part itself."""
    good = [
        row
        for row in teacher
        if row["kind"] in STUDENTS
        and row["agreement"] >= _wanted(teacher)
        and teacher_accuracy(teacher) - row["accuracy"] <= LOST + 1e-9
    ]
    return min(good, key=lambda row: row["ms"]) if good else None


def _agreement(name: str) -> Callable[[Teacher], float | None]:
    def value(teacher: Teacher) -> float | None:
        row = _named(teacher, name)
        return None if row is None else row["agreement"]

    return value


def _spread(
    values: Iterable[float | None], worst: Callable[[Iterable[float]], float], digits: int = 2
) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.mean(known):.{digits}f} ({worst(known):.{digits}f})" if known else "–"


def _wanted(teacher: Teacher) -> float:
    return AGREEMENT.get(teacher[0]["data"].split()[0], AGREEMENT_ELSE)


def _summary(name: str, teachers: list[Teacher]) -> Row:
    return {
        "data": name,
        "teachers": len(teachers),
        "accuracy": f"{statistics.mean(map(teacher_accuracy, teachers)):.2f}",
        "agreement": _spread((_chosen(one)["agreement"] for one in teachers), min),
        "aim": _wanted(teachers[0]),
        "lost": _spread(map(_lost, teachers), max),
        "faster, 1e-3": _spread(map(_faster("1e-3"), teachers), min, 1),
        "faster, 1e-6": _spread(map(_faster("1e-6"), teachers), min, 1),
        "faster, one cost": ", ".join(
            f"{statistics.mean(_solving(one, tolerance) / _single(one)['ms'] for one in teachers):.1f}"
            for tolerance in FASTER
        ),
        "than plain iteration": ", ".join(
            f"{statistics.mean(map(_faster(tolerance, PLAIN), teachers)):.1f}" for tolerance in FASTER
        ),
        "guarded": _spread(map(_agreement("guarded"), teachers), min),
        "undesigned": _spread(map(_agreement("undesigned"), teachers), min),
        "unreadable": _spread(map(_agreement("unreadable"), teachers), min),
    }


def _title(teacher: Teacher) -> str:
    first = teacher[0]
    seed = f", seed {first['seed']}" if first["seed"] else ""
    return (
        f"{first['data']} {first['activation']} {first['feedback']} width {first['width']} "
        f"{first['trained']}{seed}"
    )


def _verdicts(teachers: list[Teacher]) -> str:
    """For each aim, of how many teachers it holds, and the others by name with their number."""
    aims: list[tuple[str, Callable[[Teacher], float], Callable[[Teacher], bool]]] = [
        (
            "agreement ≥ 99.5 % on MNIST, ≥ 99 % elsewhere",
            lambda one: _chosen(one)["agreement"],
            lambda one: _chosen(one)["agreement"] >= _wanted(one),
        ),
        (f"accuracy at most {LOST} points below the teacher", _lost, lambda one: _lost(one) <= LOST + 1e-9),
        *(
            (
                f"≥ {limit:g} times as fast as the DEQ at {tolerance}",
                _faster(tolerance),
                lambda one, tolerance=tolerance, limit=limit: _faster(tolerance)(one) >= limit,
            )
            for tolerance, limit in FASTER.items()
        ),
        *(
            (
                f"≥ {limit:g} times as fast as the DEQ at {tolerance} by plain iteration",
                _faster(tolerance, PLAIN),
                lambda one, tolerance=tolerance, limit=limit: _faster(tolerance, PLAIN)(one) >= limit,
            )
            for tolerance, limit in FASTER.items()
        ),
        (
            f"guarded at a fallback of 5 %: agreement ≥ {GUARDED} %",
            lambda one: _agreement("guarded")(one) or 0.0,
            lambda one: (_agreement("guarded")(one) or 0.0) >= GUARDED,
        ),
    ]
    lines = []
    for words, value, holds in aims:
        failing = [one for one in teachers if not holds(one)]
        names = "; ".join(f"{_title(one)}: {value(one):.2f}" for one in failing)
        lines.append(
            f"- {words}: {len(teachers) - len(failing)} of {len(teachers)} teachers."
            + (f" Not: {names}." if names else "")
        )
    return "\n".join(lines) + "\n"


_MET = (
    "Times are over those of the DEQ at 1e-3 and 1e-6. 'steps': of its solver; 'rate': spectral radius of ∂f/∂z. "
    "'a; on 15% of the rows b' are two students in one, b asked only where a is not sure; 'one cost': what is given if "
    "every row has to cost the same, its agreement and times as fast. "
    "'one layer': how many times as fast the student with a single step is, which none of as many units "
    "exceeds. 'in hindsight': the quickest student of the front with the wanted agreement and accuracy on "
    "the test part itself.\n"
)


def _met_row(teacher: Teacher) -> Row:
    """A teacher: its student, what was not met, and what could have been."""
    student, single, found = _chosen(teacher), _single(teacher), _cheapest_with_aim(teacher)
    layer = min(row["ms"] for row in teacher if row["name"].startswith("1 step of its own"))

    def times(ms: float) -> str:
        return ", ".join(f"{_solving(teacher, tolerance) / ms:.1f}" for tolerance in FASTER)

    missed = [
        *([f"agreement {_wanted(teacher)}"] if student["agreement"] < _wanted(teacher) else []),
        *(["accuracy"] if _lost(teacher) > LOST + 1e-9 else []),
        *(f"{limit:g} times at {name}" for name, limit in FASTER.items() if _faster(name)(teacher) < limit),
    ]
    rate = teacher[0]["rate"]
    return {
        "teacher": _title(teacher),
        "rows": teacher[0].get("rows", "–"),
        "steps": f"{teacher[0]['steps_1e-3']}, {teacher[0]['steps_1e-6']}",
        "rate": "–" if rate is None else f"{rate:.2f}",
        "student": _short_name(student),
        "agreement": f"{student['agreement']:.2f}",
        "lost": f"{_lost(teacher):.2f}",
        "times as fast": times(student["ms"]),
        "not met": "; ".join(missed) or "–",
        "one cost": f"{_short_name(single)}: {single['agreement']:.2f}, {times(single['ms'])}",
        "one layer": times(layer),
        "in hindsight": "none" if found is None else f"{_short_name(found)}: {times(found['ms'])}",
    }


def _short_name(row: Row) -> str:
    name = row["name"].replace(" of its own", "").replace(", all weights fitted", ", fitted")
    return name.replace(", closed form", "").replace(", the last step read out alone", " alone")


def _intervals(teachers: list[Teacher]) -> str:
    """How often the stated interval holds the agreement on the test part, and whether a sure student is one."""
    known = [one for one in teachers if _chosen(one).get("interval")]
    held = sum(
        low <= _chosen(one)["agreement"] / 100 <= high
        for one in known
        for low, high in [_chosen(one)["interval"]]
    )
    sure = [one for one in known if one[0]["sure"]]
    right = sum(_chosen(one)["agreement"] / 100 >= one[0]["until"] for one in sure)
    return (
        f"- The interval that `distill` states holds the agreement on the test part for {held} of {len(known)} "
        f"teachers; {len(sure)} students were called sure to reach what was asked for, and {right} do.\n"
    )


def _steps_row(key: tuple[object, ...], teachers: list[Teacher]) -> Row:
    line: Row = {"data": key[0], "feedback": key[1], "teachers": len(teachers)}
    for words in ("1 step", "2 steps", "3 steps"):

        def mean(match: Callable[[str], bool]) -> str:
            values = [row["agreement"] for one in teachers for row in one if match(row["name"])]
            return f"{statistics.mean(values):.2f}" if values else "–"

        own = f"{words} of its own"
        cells = [
            mean(lambda name, words=words: name == f"DEQ cut after {words}"),
            mean(lambda name, own=own: name == f"{own}, closed form"),
            mean(lambda name, own=own: name == f"{own}, all weights fitted"),
        ]
        if words != "1 step":
            cells.append(
                mean(lambda name, own=own: name.startswith(f"{own}, rank") and name.endswith("fitted"))
            )
        line[words] = ", ".join(cells)
    return line


def _beside_cutting(teachers: list[Teacher]) -> str:
    """At the cost of each cut, the most faithful student that costs no more."""
    places = better = closer = 0
    failing, gains = [], []
    for one in teachers:
        cuts = [row for row in one if row["kind"] == "cut"]
        students = [row for row in one if row["kind"] in STUDENTS]
        for cut in cuts:
            affordable = [row for row in students if row["operations"] <= cut["operations"]]
            if not affordable:
                continue
            best = max(row["agreement"] for row in affordable)
            places += 1
            better += best >= cut["agreement"]
            closer += min(row["error"] for row in affordable) <= cut["error"]
            gains.append(best - cut["agreement"])
            if best < cut["agreement"]:
                failing.append(
                    f"{_title(one)}, {cut['name'].removeprefix('DEQ ')}: {best:.2f} against {cut['agreement']:.2f}"
                )
    words = f" Not: {'; '.join(failing)}." if failing else ""
    return (
        f"- At the cost of a cut after 1 to 8 steps (multiplications) the best student that costs no more agrees with "
        f"the teacher at least as often at {better} of {places} places, on average by {statistics.mean(gains):.2f} "
        f"points.{words} Its outputs are closer to the teacher's at {closer} of {places} places.\n"
    )


def _teacher_row(teacher: Teacher) -> Row:
    first, student = teacher[0], _chosen(teacher)
    guard = _named(teacher, "guarded") or {}
    rate = "–" if first["rate"] is None else f"{first['rate']:.2f}, {first['rate_max']:.2f}"
    return {
        **{key: first[key] for key in KEYS},
        "epochs": first.get("epochs", 8),
        "norm": f"{first['norm']:.2f}",
        "rate": rate,
        "steps": f"{first['steps_1e-3']}, {first['steps_1e-6']}",
        "accuracy": f"{teacher_accuracy(teacher):.2f}",
        "student": _short_name(student),
        "agreement": f"{student['agreement']:.2f}",
        "lost": f"{_lost(teacher):.2f}",
        "faster": f"{_faster('1e-3')(teacher):.1f}, {_faster('1e-6')(teacher):.1f}",
        "guarded": f"{guard.get('agreement', float('nan')):.2f}",
        "asked %": f"{guard.get('asked', float('nan')):.1f}",
        "expected, observed %": f"{guard.get('expected', float('nan')):.2f}, {guard.get('observed', float('nan')):.2f}",
    }
