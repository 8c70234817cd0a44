"""The explorer, `notsodeep explore`: a local web page that answers whether a cell settles and how deep it must be.

Computation and page are separate: `controls` and `page` import streamlit, `offered_networks`, `choice`, `uploads`,
`computations`, `answers`, `pictures` and `recipes` do not.
"""
