"""The report: results, figures and papers' claims as one self-contained page."""

from notsodeep.report.page import page, report, write_page
from notsodeep.report.sections import Section

__all__ = ["Section", "page", "report", "write_page"]
