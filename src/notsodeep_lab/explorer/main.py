"""The script that streamlit runs for `notsodeep explore`."""

# The worker process of the page imports this module without running it.
if __name__ == "__main__":
    from notsodeep_lab.explorer.page import show

    show()
