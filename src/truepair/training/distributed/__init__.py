"""Full-catalogue training over several processes: users and items are divided by rows."""
