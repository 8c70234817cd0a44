"""Downloads of the page: an HTML report with design, figures and commands, and a ZIP file of the figures."""

from __future__ import annotations

import io
import zipfile

from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.computations import design_of, distances_of, spectrum_of
from notsodeep_lab.explorer.first_screen import verdict_of
from notsodeep_lab.explorer.pictures import Picture, kinds_of, picture_of
from notsodeep_lab.explorer.recipes import as_commands, as_python
from notsodeep_lab.explorer.words import spectrum_summary
from notsodeep_lab.report.rendering import Section, page, parts, picture
from notsodeep_lab.report.sections import design_body


def report_page(choice: Choice) -> str:
    """Create a self-contained HTML report of the current settings."""
    make = parts()
    title = f"A DEQ with {choice.activation_text}, and its shallow twin"
    again = Section(
        "How to reproduce it", (make.heading("Python"), make.command(as_python(choice))), "repeat"
    )
    judged = [make.paragraph(line) for line in str(verdict_of(choice)).splitlines()]
    first = [
        picture(one.svg(), one.words, one.caption)
        for one in _pictures(choice)
        if one.name in ("curves", "times")
    ]
    verdict = Section("The verdict", (*judged, *first), "verdict")
    if choice.images:
        lines = tuple(make.paragraph(line) for line in design_of(choice).explain().splitlines())
        sections = [verdict, Section("The shallow network", lines, "design"), again]
        return page(title, [], sections, as_commands(choice))
    sentences = (str(distances_of(choice)), spectrum_summary(spectrum_of(choice)))
    # The section of the design has its own figure.
    shown = [one for one in _pictures(choice) if one.name == "spectrum"]
    kernel = [
        *(make.paragraph(sentence) for sentence in sentences),
        *(picture(one.svg(), one.words, one.caption) for one in shown),
    ]
    sections = [
        verdict,
        Section("The shallow network", (design_body(design_of(choice)),), "design"),
        Section("The kernel on these data", tuple(kernel), "kernel"),
        again,
    ]
    return page(title, [], sections, as_commands(choice))


def figures_zip(choice: Choice) -> bytes:
    """Return all figures as PNG and SVG in one ZIP file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in _pictures(choice):
            archive.writestr(f"{one.name}.svg", one.svg())
            archive.writestr(f"{one.name}.png", one.png())
    return content.getvalue()


def _pictures(choice: Choice) -> list[Picture]:
    return [picture_of(kind, choice) for kind in kinds_of(choice)]
