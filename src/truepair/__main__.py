"""`python -m truepair` is the command `truepair`."""

from truepair.cli.main import main

if __name__ == "__main__":
    main()
