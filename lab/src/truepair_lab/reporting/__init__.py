"""What the studies share for their pages: drawing, the machine, written answers."""
