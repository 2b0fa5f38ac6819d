"""`python -m pyroute` is the command `pyroute`."""

from pyroute.cli import main

if __name__ == "__main__":
    main()
