"""What people did: reading it, simulating it, splitting it."""
