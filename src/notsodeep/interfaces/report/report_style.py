"""How the page looks: on a desk, on a phone, in the dark, on paper."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --shade: #f6f8fa; --link: #0059a8; --yes: #0b6b4f; --no: #a33c00; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e6e8eb; --soft: #a2abb5; --line: #3a424c;
  --shade: #1e2329; --link: #7cc0ff; --yes: #5fd3ab; --no: #ffa26b; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 0.3rem; padding-top: 0.8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.3rem 0 0.3rem; }
p { margin: 0.4rem 0 0.8rem; max-width: 46rem; }
a { color: var(--link); }
.soft { color: var(--soft); }
.yes { color: var(--yes); font-weight: 600; white-space: nowrap; }
.no { color: var(--no); font-weight: 600; white-space: nowrap; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.875rem; margin: 0.3rem 0 0.8rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.7rem 0.3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; unicode-bidi: isolate; }
td, tbody th { min-width: 3.5rem; max-width: 26rem; overflow-wrap: break-word; }
tbody th { min-width: 8rem; }
td.sentence { min-width: 17rem; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 500; }
pre { margin: 0.3rem 0 0.8rem; padding: 0.6rem 0.8rem; background: var(--shade); border: 1px solid var(--line);
  border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.85rem; unicode-bidi: isolate; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
figure { margin: 0.8rem 0; }
figure .scroll { background: #ffffff; border: 1px solid var(--line); border-radius: 6px; padding: 0.4rem; }
figure img { display: block; width: 100%; max-width: 30rem; height: auto; margin: 0 auto; }
figure img.wide { max-width: 56rem; min-width: 34rem; }
figcaption { color: var(--soft); font-size: 0.875rem; margin-top: 0.3rem; }
details { margin: 0.5rem 0; }
summary { cursor: pointer; color: var(--link); }
footer { margin-top: 3rem; padding-top: 0.8rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: 0.875rem; }
@media print {
  :root { color-scheme: light; --paper: #ffffff; --ink: #000000; --soft: #444444; --line: #bbbbbb; --shade: #ffffff;
    --link: #000000; --yes: #000000; --no: #000000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2, h3 { break-after: avoid; }
  figure, tr, pre { break-inside: avoid; }
  figure img.wide { min-width: 0; }
  .scroll { overflow: visible; }
  td, td.sentence, tbody th { max-width: none; min-width: 0; }
  details { display: none; }
}
"""

__all__ = ["CSS"]
