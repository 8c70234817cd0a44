"""The report: all results, figures and claims of the papers as one self-contained page."""

from notsodeep.extras import needed

needed("jinja2", "A report (notsodeep_lab.report)")

from notsodeep_lab.report.rendering import Section, page, write_page
from notsodeep_lab.report.sections import report

__all__ = ["Section", "page", "report", "write_page"]
