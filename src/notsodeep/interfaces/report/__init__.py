"""The report: results, figures and papers' claims as one self-contained page."""

from notsodeep.interfaces.report.report_page import page, report, write_page
from notsodeep.interfaces.report.sections import Section

__all__ = ["Section", "page", "report", "write_page"]
