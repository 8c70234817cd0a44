"""What streamlit runs: `notsodeep explore`."""

# Also imported, and not run, by the process that computes predictions beside the page.
if __name__ == "__main__":
    from notsodeep_lab.explorer.page import show

    show()
