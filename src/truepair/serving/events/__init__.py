"""Events of people, and the file that they are kept in."""
