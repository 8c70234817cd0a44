"""What is typed for activations and data: one reader for all commands, the numbers of the library behind them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tolerances import Oracle, assert_close
from typer.testing import CliRunner, Result

import notsodeep as nsd
from notsodeep.cli.entry import app
from notsodeep.cli.scenario import read_activation
from notsodeep.data import Preprocessing, load
from notsodeep.data.table_files import open_table
from notsodeep.designs import Design


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def numbers(*arguments: str) -> dict:
    done = run("spectrum", *arguments, "--json")
    assert done.exit_code == 0, done.output + repr(done.exception)
    return json.loads(done.stdout)


# --- activations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tanh", nsd.activation("tanh")),
        ("leaky_relu:a=1,b=0.2", nsd.activation("leaky_relu", a=1.0, b=0.2)),
        ("elu:alpha=-5e-1", nsd.activation("elu", alpha=-0.5)),
        ("polynomial:coefficients=0;1;-0.25", nsd.activation("polynomial", coefficients=(0.0, 1.0, -0.25))),
        (
            "piecewise_linear:knots=-1;2,slopes=0;1;0.5",
            nsd.activation("piecewise_linear", knots=(-1.0, 2.0), slopes=(0.0, 1.0, 0.5)),
        ),
        ("formula:x * clip(x, -1, 1)", nsd.activation("formula", expression="x*clip(x,-1,1)")),
        ("x*sigmoid(x)", nsd.activation("formula", expression="x*sigmoid(x)")),
        ("max(x, 0.1*x)", nsd.activation("formula", expression="max(x, 0.1*x)")),
        ("x", nsd.activation("formula", expression="x")),
    ],
)
def test_activations_as_they_are_typed(text: str, expected: nsd.Activation) -> None:
    assert read_activation(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("thah", "no activation"),
        ("leaky_relu:a", "not a parameter"),
        ("leaky_relu:a=one", "not a parameter"),
        ("leaky_relu:slope=1", "does not take"),
        ("formula:", "empty"),
        ("formula", "empty"),
        ("formula:x^2", r"\*\*"),
        ("formula:__import__('os')", "no place"),
    ],
)
def test_mistakes_in_activations_get_a_sentence(text: str, words: str) -> None:
    for command in (["design"], ["spectrum", "--n", "20", "--p", "20"], ["kernel", "digits"]):
        done = run(*command, "--activation", text)
        assert isinstance(done.exception, nsd.InputError)
        with pytest.raises(nsd.InputError, match=words):
            raise done.exception
    assert list(Path().iterdir()) == []


@pytest.mark.slow
def test_a_formula_goes_through_the_design() -> None:
    done = run("design", "--activation", "formula:x*sigmoid(x)", "--json", "--save", "twin.json")
    assert done.exit_code == 0, done.output
    made = Design.load(Path("twin.json"))
    assert made.model is not None
    assert made.model.activation.shape == nsd.activation("formula", expression="x*sigmoid(x)").shape


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mixture_is_the_one_of_the_library() -> None:
    found = numbers("--n", "80", "--p", "60", "--mean", "5", "--gap", "2", "--seed", "3")
    mixture = nsd.GaussianMixture.paper(60, mean=5.0, gap=2.0)
    X, y = mixture.sample(80, seed=3)
    model = nsd.DEQ("relu", 0.2).centred(nsd.MixtureStatistics.of(mixture, X, y).tau0)
    assert_close(found["exact"], np.linalg.eigvalsh(nsd.conjugate_kernel(model, X)), Oracle.IDENTITY)
    predicted = nsd.limiting_density(model, mixture, 80, form="refined")
    assert_close(found["predicted"]["edges"], predicted.edges, Oracle.IDENTITY)
    assert_close(found["predicted"]["isolated"], predicted.isolated, Oracle.IDENTITY)
    assert found["errors"] == []
    assert Path(found["figure"]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_sphere_has_unit_rows_and_a_predicted_spectrum() -> None:
    found = numbers("--data", "sphere", "--n", "300", "--p", "200", "--seed", "1", "--activation", "relu")
    X = nsd.UnitSphere(200).sample(300, seed=1)
    model = nsd.DEQ("relu", 0.2).centred(1.0)
    assert found["tau0"] == 1.0
    assert_close(found["exact"], np.linalg.eigvalsh(nsd.conjugate_kernel(model, X)), Oracle.IDENTITY)
    predicted = nsd.limiting_density(model, nsd.UnitSphere(200), 300, form="refined")
    assert_close(found["predicted"]["edges"], predicted.edges, Oracle.IDENTITY)


@pytest.mark.slow
def test_digits_are_predicted_by_their_refined_equivalent() -> None:
    found = numbers("--data", "digits", "--n", "100", "--seed", "2", "--activation", "relu")
    digits = load("digits", n=100, seed=2)
    X = Preprocessing.fit(digits.X).apply(digits.X)
    tau0 = float(np.sqrt((X**2).sum(axis=1).mean()))
    model = nsd.DEQ("relu", 0.2).centred(tau0)
    exact = np.linalg.eigvalsh(nsd.conjugate_kernel(model, X))
    assert_close(found["exact"], exact, Oracle.IDENTITY)
    dense = nsd.equivalent(model, X, form="refined", square="sketch").to_dense()
    values = np.linalg.eigvalsh(dense)
    assert_close(found["predicted"]["eigenvalues"], values, Oracle.QUADRATURE)
    assert found["distance"] == pytest.approx(np.abs(exact - values).max() / exact[-1])


@pytest.mark.slow
def test_errors_are_the_distances_at_each_size() -> None:
    found = numbers("--n", "160", "--p", "80", "--errors", "--seed", "4")
    assert [(row["form"], row["n"], row["p"]) for row in found["errors"]] == [
        (form, n, p)
        for n, p in ((20, 20), (40, 20), (80, 40), (160, 80))
        for form in ("asymptotic", "refined")
    ]
    mixture = nsd.GaussianMixture.paper(40)
    X, y = mixture.sample(80, seed=4)
    stats = nsd.MixtureStatistics.of(mixture, X, y)
    model = nsd.DEQ("relu", 0.2).centred(stats.tau0)
    K = nsd.conjugate_kernel(model, X)
    for row in found["errors"][4:6]:
        dense = nsd.equivalent(model, X, stats, form=row["form"]).to_dense()
        assert row["relative"] == pytest.approx(np.linalg.norm(K - dense, 2) / np.linalg.norm(K, 2), rel=5e-3)


@pytest.mark.slow
def test_errors_of_a_file_take_its_first_rows() -> None:
    X = np.random.default_rng(0).standard_normal((90, 7))
    np.savetxt("rows.csv", X, delimiter=",")
    found = numbers("--data", "rows.csv", "--errors", "--no-check", "--scale", "none")
    assert [row["n"] for row in found["errors"]] == [20, 22, 45, 90]
    assert {(row["form"], row["p"]) for row in found["errors"]} == {("refined", 7)}
    assert found["exact"] is None
    rows = X[:45]
    model = nsd.DEQ("relu", 0.2).centred(float(np.sqrt((rows**2).sum(axis=1).mean())))
    expected = nsd.equivalence_error(model, rows, form="refined", square="sketch").relative
    assert found["errors"][2]["relative"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_words_say_what_the_numbers_say() -> None:
    np.save("rows.npy", np.random.default_rng(0).standard_normal((40, 6)))
    done = run("spectrum", "--data", "rows.npy", "--errors")
    assert done.exit_code == 0, done.output
    for words in ("exact kernel", "same rank", "n = 40, p = 6"):
        assert words in " ".join(done.stdout.split())


def test_design_measures_on_drawn_samples() -> None:
    mixture = nsd.GaussianMixture.paper(40, mean=4.0, gap=1.0)
    X, y = mixture.sample(50, seed=6)
    drawn = ("--data", "mixture", "--n", "50", "--p", "40", "--mean", "4", "--gap", "1", "--seed", "6")
    done = run("design", *drawn, "--activation", "tanh", "--save", "twin.json")
    assert done.exit_code == 0, done.output
    # An injected network is fitted to half of them.
    assert "on 25 held-out samples" in " ".join(done.stdout.split())
    assert Design.load(Path("twin.json")).tau0 == pytest.approx(nsd.MixtureStatistics.of(mixture, X, y).tau0)
    assert "on these 30 rows" in run("design", "--data", "sphere", "--samples", "30", "--p", "20").stdout


def test_the_asymptotic_form_needs_a_law() -> None:
    done = run("spectrum", "--data", "digits", "--n", "50", "--form", "asymptotic")
    assert isinstance(done.exception, nsd.InputError)
    assert "mixture or sphere" in str(done.exception)


# --- files -----------------------------------------------------------------------------------------------------------


def test_rows_of_files() -> None:
    X = np.arange(12.0).reshape(4, 3) / 7
    np.save("rows.npy", X.astype(np.float32))
    np.testing.assert_array_equal(open_table("rows.npy", 2).rows, X.astype(np.float32)[:2])
    Path("rows.csv").write_bytes(b"\xef\xbb\xbf1, 2,3\r\n\r\n4,5,6e-1\r\n")
    np.testing.assert_array_equal(open_table("rows.csv", None).rows, [[1.0, 2.0, 3.0], [4.0, 5.0, 0.6]])


ARRAYS = {
    "objects": (np.array([[1, "a"], [None, 2]], dtype=object), "numbers only"),
    "text": (np.array([["a", "b"]]), "real numbers"),
    "five axes": (np.zeros((2, 2, 2, 2, 2)), "matrix with samples in rows"),
    "one axis": (np.zeros(3), "matrix with samples in rows"),
    "a number": (np.float64(3.0), "matrix with samples in rows"),
    "nan": (np.array([[1.0, np.nan], [1.0, 2.0]]), "1 of 2 rows"),
    "infinite": (np.array([[1.0, np.inf]]), "NaN or infinite"),
    "complex": (np.array([[1.0 + 2.0j]]), "complex"),
    "empty": (np.zeros((0, 4)), "empty"),
    "no features": (np.zeros((4, 0)), "empty"),
    "huge": (np.array([[1e200, 1.0]]), "1e100"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_no_rows_are_refused(name: str) -> None:
    array, words = ARRAYS[name]
    np.save("rows.npy", array, allow_pickle=True)
    with pytest.raises(nsd.InputError, match=words):
        open_table("rows.npy", 100)


TEXTS = {
    b"a,b\n": "no rows",
    b"a,b\n1,x\n": "--label-column 'b'",
    b"1,2\n3,x\n": "Row 2, column 2 of rows.csv has 'x'",
    b"1,2\n\n3\n": "Row 3 of rows.csv has 1 cells, the first row 2",
    b"1,2,\n": "Row 1, column 3",
    b"": "no rows",
    b"\n \n": "no rows",
    b"1,nan\n": "NaN",
    b"\xff\xfe1\x00": "not text in UTF-8",
    b"1;2\n": "separated by semicolons",
}


@pytest.mark.parametrize("content", TEXTS, ids=repr)
def test_texts_that_are_no_rows_are_refused(content: bytes) -> None:
    Path("rows.csv").write_bytes(content)
    with pytest.raises(nsd.InputError) as refused:
        open_table("rows.csv", None)
    assert TEXTS[content] in str(refused.value)


def test_files_that_are_not_arrays_are_refused() -> None:
    Path("rows.npy").write_bytes(b"not an array at all")
    with pytest.raises(nsd.InputError, match="not a NPY file"):
        open_table("rows.npy", None)
    np.savez("two.npz", a=np.zeros(2), b=np.zeros(2))
    Path("two.npz").rename("two.npy")
    with pytest.raises(nsd.InputError, match="not a NPY file"):
        open_table("two.npy", None)
    Path("folder.npy").mkdir()
    with pytest.raises(nsd.InputError, match="no file"):
        open_table("folder.npy", None)
