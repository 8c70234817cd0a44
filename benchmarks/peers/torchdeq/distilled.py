"""A model of TorchDEQ, trained by TorchDEQ, as the teacher of `notsodeep.nets.distill`.

The model is what a user of TorchDEQ writes: a module with `torchdeq.get_deq`, here z = tanh(W z + U x + b) with a
linear readout, trained on MNIST by TorchDEQ's own implicit gradients, ||W|| ≤ 0.9. It is distilled twice: as a module
of which only the outputs are known, and by its own steps, `DEQNet.from_weights(W, U, b, "tanh", readout)`. Agreement
with the model and accuracy are those of the whole test part, times are processor time of 1000 rows, one thread, in
turn.

TorchDEQ is plain Python on top of torch, whose version is the same in both environments: it is taken from the peer's
environment (environments.py builds it) and runs in this process. Results: torchdeq_distilled.json and .md in --out.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: the environments

from environments import environment
from harness import RESULTS, Provenance, Row, markdown_table, write_atomically, write_json

from notsodeep.nets import DEQNet, distill, guarded
from notsodeep.nets.fidelity import milliseconds
from notsodeep.nets.student_fit import in_batches
from notsodeep_lab.papers.training_rows import Parts, parts_of

WIDTH, ROWS, EPOCHS, UNTIL = 256, 8_000, 4, 0.995
# The largest norm of W: what training makes of it beyond that is scaled back after each step.
NORM = 0.9


def peer_on_path() -> None:
    """Make `import torchdeq` find the peer's package, after everything of our own."""
    folder = environment("torchdeq").parents[1]
    sys.path.append(str(next(folder.glob("lib/python*/site-packages"))))


class Model(nn.Module):
    """A DEQ as in TorchDEQ's documentation."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        from torchdeq import get_deq

        self.W, self.U = nn.Linear(width, width, bias=False), nn.Linear(inputs, width)
        self.readout = nn.Linear(width, classes)
        nn.init.normal_(self.W.weight, std=(0.5 / width) ** 0.5)
        self.deq = get_deq(
            f_solver="fixed_point_iter", f_max_iter=60, f_tol=1e-4, b_max_iter=60, b_tol=1e-4, ift=True
        )

    def forward(self, x: Tensor) -> Tensor:
        injected = self.U(x)
        states, _ = self.deq(lambda z: torch.tanh(self.W(z) + injected), torch.zeros_like(injected))
        found: Tensor = self.readout(states[-1])
        return found


def trained(data: Parts, seed: int) -> Model:
    """The model, trained by Adam on labels of the first half of the rows."""
    torch.manual_seed(seed)
    model = Model(data.X.shape[1], WIDTH, data.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    half = len(data.X) // 2
    for _ in range(EPOCHS):
        for part in torch.split(torch.randperm(half), 64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.X[part]), data.y[part]).backward()
            optimizer.step()
            with torch.no_grad():
                weights = model.W.weight
                weights.mul_(min(1.0, NORM / float(torch.linalg.matrix_norm(weights, ord=2))))
    return model.eval()


def rows_of(data: Parts, seed: int) -> list[Row]:
    """The model and its students."""
    model = trained(data, seed)
    readable = DEQNet.from_weights(model.W.weight, model.U.weight, model.U.bias, "tanh", model.readout)
    hidden = distill(model, data.X, width=2 * WIDTH, until=UNTIL, steps=(2,), seed=seed, progress=True)
    own = distill(readable, data.X, until=UNTIL, seed=seed, progress=True)
    cut = next(one.network for one in own.front if one.name == "DEQ cut after 3 steps")
    modules = {
        "the model of TorchDEQ": model,
        "the same weights in DEQNet": readable,
        "its weights not read": hidden.network,
        "its weights not read, asked on 5 %": guarded(hidden, model, share=0.05),
        f"its weights read: {own.name}": own.network,
        "its weights read, asked on 5 %": guarded(own, readable, share=0.05),
        "cut after 3 steps": cut,
    }
    times = milliseconds(modules, data.X_test[:1000], clock=lambda _: time.process_time())
    with torch.no_grad():
        classes = {name: in_batches(one, data.X_test, 1000).argmax(1) for name, one in modules.items()}
    wanted = classes["the model of TorchDEQ"]
    return [
        {
            "network": name,
            "same class %": 100.0 * float((found == wanted).double().mean()),
            "accuracy %": 100.0 * float((found == data.y_test).double().mean()),
            "ms for 1000 rows": times[name],
            "times as fast": times["the model of TorchDEQ"] / times[name],
        }
        for name, found in classes.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--data-dir", type=Path, default=None)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    peer_on_path()
    provenance = Provenance()
    rows = rows_of(parts_of("mnist", ROWS, wanted.data_dir), 0)
    wanted.out.mkdir(parents=True, exist_ok=True)
    write_json(wanted.out / "torchdeq_distilled.json", {"rows": rows, **provenance.record()})
    shown = [
        {key: f"{value:.4g}" if key != "network" else value for key, value in row.items()} for row in rows
    ]
    text = f"# A model of TorchDEQ as the teacher\n\n{markdown_table(shown)}"
    write_atomically(wanted.out / "torchdeq_distilled.md", text)
    print(text)


if __name__ == "__main__":
    main()
