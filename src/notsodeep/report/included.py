"""One's own results in the page: designs (`notsodeep design --save`) and trainings (`notsodeep train --json`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from notsodeep.designs import FORMAT, Design
from notsodeep.errors import InputError, MissingExtraError
from notsodeep.report.markup import Child, Html, element, paragraph, picture, table
from notsodeep.report.sections import Section
from notsodeep.report.values import scaled, seconds, shown

_NEEDED = "Needed is a design (notsodeep design --save FILE) or a training (notsodeep train --json > FILE)."


def included_section(path: Path, anchor: str) -> Section:
    """The part of the page for one file.

    Raises:
        InputError: if the file is neither a design nor a training.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}. {_NEEDED}") from None
    if isinstance(content, dict) and content.get("format") == FORMAT:
        return design_section(Design.from_json(text), f"Design: {path.name}", anchor)
    if _is_training(content):
        return training_section(content, f"Training: {path.name}", anchor)
    raise InputError(f"{path} holds neither a design nor a training. {_NEEDED}")


def _is_training(content: Any) -> bool:
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(row, dict) and {"model", "accuracy"} <= row.keys() for row in content)
    )


def design_section(design: Design, title: str, anchor: str) -> Section:
    """A design: the verdict in words, the layers, scalars wanted and reached, and the activations."""
    rows: list[Sequence[Child]] = [
        (name, f"{wanted:.9g}", f"{found:.9g}", f"{design.residuals[name]:.1e}")
        for name, wanted, found in zip(
            design.residuals, design.target.as_array(), design.reached.as_array(), strict=True
        )
    ]
    layers: list[Sequence[Child]] = [
        (str(number), str(layer)) for number, layer in enumerate(design.network.layers, 1)
    ]
    header = ("scalar of the kernel", "wanted", "reached", "relative residual")
    body = [
        *(paragraph(line) for line in design.explain().splitlines()),
        *_drawn(design),
        table(("layer", "activation"), layers, "layers of the network"),
        table(header, rows, "scalars of the kernel"),
    ]
    return Section(title, tuple(body), anchor)


def _drawn(design: Design) -> list[Html]:
    """The activations; nothing where matplotlib is not installed."""
    try:
        from notsodeep import figures
    except MissingExtraError:
        return []
    figure, panels = figures.new_figure()
    figures.plot_design(design, panels[0])
    return [picture(figures.svg(figure), "the model's activation and the designed ones")]


def training_section(rows: Sequence[dict[str, Any]], title: str, anchor: str) -> Section:
    """A race of models: accuracy, agreement, times, memory."""
    shared = {
        name: shown(rows[0].get(name)) for name in ("data", "width", "train", "optimizer", "lr", "seeds")
    }
    setting = ", ".join(f"{name} {value}" for name, value in shared.items() if value)
    header = ("model", "test accuracy", "agrees with the DEQ", "epoch", "1000 samples", "memory of a step")
    notes = [
        paragraph(f"{shown(row['model'])} stopped early: {shown(row['stopped'])}", class_="soft")
        for row in rows
        if row.get("stopped")
    ]
    networks = [
        element("li", element("strong", shown(row["model"])), f": {shown(row['network'])}")
        for row in rows
        if row.get("network")
    ]
    body = [
        paragraph(setting, class_="soft"),
        table(header, [_cells(row) for row in rows], "models trained alike"),
        *([element("ul", *networks)] if networks else []),
        *notes,
    ]
    return Section(title, tuple(body), anchor)


def _cells(row: dict[str, Any]) -> list[Child]:
    spread = row.get("accuracy_sd")
    deviation = "" if spread is None else f" ± {scaled(spread, 100, '%', 2)}"
    return [
        shown(row["model"]),
        scaled(row["accuracy"], 100, "%", 4) + deviation,
        scaled(row.get("agreement"), 100, "%"),
        seconds(row.get("seconds_per_epoch")),
        seconds(row.get("inference_seconds")),
        scaled(row.get("memory"), 2.0**-20, "MiB"),
    ]


__all__ = ["design_section", "included_section", "training_section"]
