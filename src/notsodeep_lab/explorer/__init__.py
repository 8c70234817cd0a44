"""The explorer, `notsodeep explore`: a local web page that shows a DEQ, its shallow twin and their spectra.

Computation and page are separate: `choice`, `uploads`, `computations`, `first_screen`, `recipes`, `race_job` and
`pictures` do not import streamlit; `controls`, `verdict_panels`, `page_panels`, `race_panels` and `page` draw the page.
"""
