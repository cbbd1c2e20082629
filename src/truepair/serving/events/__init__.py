"""Events of users, and the file that they are kept in."""
