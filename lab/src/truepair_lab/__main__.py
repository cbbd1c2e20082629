"""The command `truepair-lab`, also as `python -m truepair_lab`."""

import signal

from truepair.cli.interruption import end_at_interrupt


def main() -> None:
    """The entry point: the command line, whose imports take a while, after Ctrl-C is in hand."""
    end_at_interrupt()
    from truepair_lab.cli.main import main as command_line

    try:
        command_line()
    finally:  # the command is over, and its exit code tells how
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
