"""LaTeX to MathML that browsers draw by themselves: latex2mathml, and what MathML Core asks for beyond it.

Browsers implement MathML Core, which is smaller than MathML 3: letters of another alphabet are Unicode characters
and not a `mathvariant`, columns are aligned by style, and a bracket stretches with its own row only.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from latex2mathml.converter import convert

# Where the capital A, the small a and the digit 0 of an alphabet stand, and the letters that Unicode has elsewhere.
ALPHABETS = {
    "double-struck": (0x1D538, 0x1D552, 0x1D7D8, dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True))),
    "script": (0x1D49C, 0x1D4B6, None, dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True))),
    "bold": (0x1D400, 0x1D41A, 0x1D7CE, {}),
}
# Environments that latex2mathml knows, and others as ones it knows.
KNOWN = {"matrix", "pmatrix", "bmatrix", "vmatrix", "cases", "array", "align*"}
ENVIRONMENTS = {"aligned": "align*", "gathered": "matrix"}
ROWS = ("math", "mrow", "mtd", "mstyle", "msqrt")
SCRIPTS = ("msub", "msup", "msubsup", "munder", "munderover")
THIN = {"width": "0.167em"}
PRIMES = ("′", "″", "‴")
NEGATIVE_SPACE = {"negativethinmathspace": "-0.167em"}


class MathematicsError(ValueError):
    """A formula that cannot be shown."""


def to_mathml(latex: str, *, display: bool) -> str:
    """One formula, without its dollars, as a `<math>` element."""
    try:
        root = _parsed(latex, "block" if display else "inline")
    except Exception as error:  # latex2mathml raises a dozen kinds, and none of its own base
        raise MathematicsError(f"cannot be converted ({type(error).__name__}: {error}): {latex}") from error
    if unknown := re.search(r"\\\w*", "".join(root.itertext())):
        raise MathematicsError(f"has {unknown.group()}, which latex2mathml does not know: {latex}")
    for element in list(root.iter()):
        _set_letters(element)
        _use_unicode_letters(element)
        _lift_primes(element)
        _align(element)
        _space(element)
        _join_upright_letters(element)
        _fence_tables(element)
        _name_functions(element)
    text = ElementTree.tostring(root, encoding="unicode")
    return text.replace("\n", " ")


def _parsed(latex: str, display: str) -> ElementTree.Element:
    # latex2mathml leaves out an environment that it does not know, without a word.
    if unknown := set(re.findall(r"\\begin\{([^}]*)\}", latex)) - KNOWN - set(ENVIRONMENTS):
        raise MathematicsError(f"an unknown environment, {', '.join(sorted(unknown))}")
    for theirs, ours in ENVIRONMENTS.items():
        latex = re.sub(rf"\\(begin|end)\{{{theirs}\}}", rf"\\\1{{{ours}}}", latex)
    # An ampersand outside of a table is written as it is, which is no XML; `\|` and `\;` are left alone.
    text = re.sub(r"&(?!#|\w+;)", "&amp;", convert(latex.strip(), display=display))
    # In HTML the element needs no namespace, and its children are named more simply without.
    root = ElementTree.fromstring(re.sub(r' xmlns="[^"]*"', "", text))
    if "&" in "".join(root.itertext()):
        raise MathematicsError("an & outside of a table")
    return root


def _set_letters(element: ElementTree.Element) -> None:
    """As TeX does: capital Greek letters upright, no space around a slash or a bar, ∞ a letter, ∼ a relation."""
    if element.tag == "mi" and "Α" <= (element.text or " ") <= "Ω":
        element.set("mathvariant", "normal")
    elif element.tag == "mo" and element.text in {"/", "|", "‖"}:
        element.attrib.update({"lspace": "0", "rspace": "0"})
    elif element.tag == "mo" and element.text == "∞":
        element.tag = "mi"
    elif element.tag == "mi" and element.text == "~":
        element.tag, element.text = "mo", "∼"
        element.attrib.update({"lspace": "0.278em", "rspace": "0.278em"})


def _lift_primes(element: ElementTree.Element) -> None:
    """A prime is raised in every font: as a superscript it would be raised twice, and small."""
    if element.tag not in {"msup", "msubsup"}:
        return
    script = element[-1]
    prime = script[0] if script.tag == "mrow" and len(script) else script  # of E' and of E'^2
    if prime.text not in PRIMES:
        return
    if prime is script:
        element.remove(script)
        element.tag = "mrow" if element.tag == "msup" else "msub"
    else:
        script.remove(prime)
    prime.tag, prime.attrib = "mo", {"lspace": "0", "rspace": "0"}
    primed = ElementTree.Element("mrow")
    primed.extend((element[0], prime))
    element[0] = primed


def _use_unicode_letters(element: ElementTree.Element) -> None:
    """`mathvariant="script"` becomes the letter itself."""
    variant = element.get("mathvariant")
    if variant in ALPHABETS and element.text:
        del element.attrib["mathvariant"]
        capital, small, digit, elsewhere = ALPHABETS[variant]
        starts = {"A": capital, "a": small, "0": digit}

        def letter(character: str) -> str:
            if character in elsewhere:
                return elsewhere[character]
            for first, last in (("A", "Z"), ("a", "z"), ("0", "9")):
                if first <= character <= last and starts[first] is not None:
                    return chr(starts[first] + ord(character) - ord(first))
            return character

        element.text = "".join(map(letter, element.text))


def _align(element: ElementTree.Element) -> None:
    """Columns by style; the empty column between pairs of an alignment by padding."""
    if element.tag == "mtable" and "columnspacing" in element.attrib:
        element.set("class", "aligned")
        for attribute in ("columnspacing", "rowspacing"):
            element.attrib.pop(attribute, None)
    if element.tag == "mtable" and all(len(row) == 1 for row in element):
        element.set("displaystyle", "true")
    if side := element.attrib.pop("columnalign", None):
        element.set("style", f"text-align: {side}")


def _space(element: ElementTree.Element) -> None:
    if (width := element.get("width")) in NEGATIVE_SPACE:
        element.set("width", NEGATIVE_SPACE[width])


def _join_upright_letters(element: ElementTree.Element) -> None:
    r"""`\mathrm{clip}` is one word: as four elements its letters would stand apart."""
    if element.tag != "mrow" or len(element) < 2:
        return
    if all(child.tag == "mi" and child.get("mathvariant") == "normal" for child in element):
        word = "".join(child.text or "" for child in element)
        for child in list(element):
            element.remove(child)
        ElementTree.SubElement(element, "mi").text = word


def _fence_tables(element: ElementTree.Element) -> None:
    """The brackets of a matrix and the matrix are a row of their own: a bracket grows with its row."""
    children = list(element)
    for left, table, right in zip(children, children[1:], children[2:], strict=False):
        if [child.tag for child in (left, table, right)] == ["mo", "mtable", "mo"]:
            row = ElementTree.Element("mrow")
            element.insert(list(element).index(left), row)
            for child, form in ((left, "prefix"), (table, None), (right, "postfix")):
                element.remove(child)
                row.append(child)
                if form:
                    child.attrib.update({"form": form, "fence": "true", "stretchy": "true"})


def _name_functions(element: ElementTree.Element) -> None:
    """The name of a function (`tr`, `log`, `max`) is an identifier, with thin spaces between it and other letters."""
    if element.tag not in ROWS:
        return
    children = list(element)
    for place, child in enumerate(children):
        name = child[0] if child.tag in SCRIPTS and len(child) else child
        if name.tag not in {"mo", "mi"} or not re.fullmatch(r"[A-Za-z]{2,}", name.text or ""):
            continue
        name.tag, name.attrib = "mi", {}
        before = children[place - 1] if place else None
        after = children[place + 1] if place + 1 < len(children) else None
        if before is not None and _is_letter(before):
            element.insert(list(element).index(child), ElementTree.Element("mspace", THIN))
        if after is not None and _is_letter(after):
            element.insert(list(element).index(child) + 1, ElementTree.Element("mspace", THIN))


def _is_letter(element: ElementTree.Element) -> bool:
    """Whether an element begins with a letter, a number, a fraction or a root: not with a bracket or a space."""
    while element.tag in {"mrow", *SCRIPTS} and len(element):
        element = element[0]
    return element.tag in {"mi", "mn", "mfrac", "msqrt", "mover", "mstyle"}
