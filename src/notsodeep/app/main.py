"""What streamlit runs: `streamlit run main.py`, as `notsodeep explore` does."""

from notsodeep.app.page import show

show()
