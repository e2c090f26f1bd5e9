"""What people read: the terminal's tables and evidence."""
