"""The explorer, `notsodeep explore`: a page on this machine that shows a DEQ, its shallow twin and their spectra.

What is computed stands apart from what is drawn on the page: `choice`, `uploads`, `computations`, `recipes`, `race_job`
and `pictures` know nothing of the page and can be used and tested without it; `controls`, `page_panels` and `page` are
the page.
"""
